// Rows of residual_norm in bf16 by AVX-512: numbers are widened, computed with and rounded in registers.
#include <algorithm>

#include "kernels/cpu/rounding.h"
#include "kernels/cpu/stored.h"
#include "kernels/residual_norm/cpu.h"

namespace xformer::kernels::by_512 {

#ifdef XFORMER_BY_BF16_512

namespace {

constexpr int64_t kStep = 32;
constexpr int64_t kRows = 16;  // whose sums are taken together, so that no row waits for those of the one before it

struct Drop {
  __m512 keep;
  __m512i threshold;
};

XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Drop drop_of(const DropRule& rule) {
  return {_mm512_set1_ps(static_cast<float>(rule.keep)), _mm512_set1_epi16(static_cast<int16_t>(rule.threshold))};
}

// What dropout leaves of 32 numbers.
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Lanes32 dropped(const Lanes32& x, const uint16_t* draws,
                                                                  __mmask32 lanes, const Drop& drop) {
  const __mmask32 kept = _mm512_mask_cmpge_epu16_mask(lanes, _mm512_maskz_loadu_epi16(lanes, draws), drop.threshold);
  return {_mm512_maskz_mul_ps(low_of(kept), x.low, drop.keep), _mm512_maskz_mul_ps(high_of(kept), x.high, drop.keep)};
}

XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Lanes32 added(const Lanes32& a, const Lanes32& b) {
  return {_mm512_add_ps(a.low, b.low), _mm512_add_ps(a.high, b.high)};
}

// The sums of 16 registers, in the order in which _mm512_reduce_add_ps adds each of them: halves, then halves of these.
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline __m512 totals(const __m512 (&rows)[kRows]) {
  __m512 halves[8], quarters[4], pairs[2];
  for (int i = 0; i < 8; ++i)
    halves[i] = _mm512_add_ps(_mm512_shuffle_f32x4(rows[2 * i], rows[2 * i + 1], 0x44),
                              _mm512_shuffle_f32x4(rows[2 * i], rows[2 * i + 1], 0xEE));
  for (int i = 0; i < 4; ++i)
    quarters[i] = _mm512_add_ps(_mm512_shuffle_f32x4(halves[2 * i], halves[2 * i + 1], 0x88),
                                _mm512_shuffle_f32x4(halves[2 * i], halves[2 * i + 1], 0xDD));
  for (int i = 0; i < 2; ++i)
    pairs[i] = _mm512_add_ps(_mm512_shuffle_ps(quarters[2 * i], quarters[2 * i + 1], 0x44),
                             _mm512_shuffle_ps(quarters[2 * i], quarters[2 * i + 1], 0xEE));
  const __m512 turned = _mm512_add_ps(_mm512_shuffle_ps(pairs[0], pairs[1], 0x88),
                                      _mm512_shuffle_ps(pairs[0], pairs[1], 0xDD));  // of row 4 p + l at 4 l + p
  return _mm512_permutexvar_ps(_mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0), turned);
}

XFORMER_BY_BF16_512 [[gnu::always_inline]] inline __m512 joined(const Lanes32& x) {
  return _mm512_add_ps(x.low, x.high);
}

// (x - mean) rstd, 0 in lanes that are not there.
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Lanes32 normal(const Lanes32& x, __mmask32 lanes, const __m512& mean,
                                                                 const __m512& rstd) {
  return {_mm512_maskz_mul_ps(low_of(lanes), _mm512_sub_ps(x.low, mean), rstd),
          _mm512_maskz_mul_ps(high_of(lanes), _mm512_sub_ps(x.high, mean), rstd)};
}

// The lanes of a step of which `left` numbers are left; all of them in rows of whole steps.
template <bool kWhole>
[[gnu::always_inline]] inline __mmask32 lanes_of_step(int64_t left) {
  return kWhole ? ~__mmask32{0} : lanes32_of(left);
}

// Sums of a row, from which the norm is made before they are rounded, into `wide`.
template <bool kWhole>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Lanes32 sums_of(const BlockForward<c10::BFloat16>& block, int64_t at,
                                                                  const Drop& drop, float* wide) {
  Lanes32 all = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (int64_t i = 0; i < block.width; i += kStep) {
    const __mmask32 lanes = lanes_of_step<kWhole>(block.width - i);
    fetch_to_read(block.x + at + i);
    Lanes32 x = widened_by_512(block.x + at + i, lanes);
    if (block.branch != nullptr) {
      fetch_to_read(block.branch + at + i);
      Lanes32 branch = widened_by_512(block.branch + at + i, lanes);
      if (block.drop.draws != nullptr) branch = dropped(branch, block.drop.draws + at + i, lanes, drop);
      x = added(x, branch);
      store_rounded(x, lanes, block.sum + at + i);
    }
    if (block.normed == nullptr) continue;
    _mm512_storeu_ps(wide + i, x.low);
    _mm512_storeu_ps(wide + i + kStep / 2, x.high);
    all = added(all, x);
  }
  return all;
}

// u weight + bias.
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void store_normed(const Lanes32& u, const float* weights,
                                                                    const float* biases, __mmask32 lanes,
                                                                    c10::BFloat16* to) {
  const Lanes32 weight = floats_by_512(weights, lanes), bias = floats_by_512(biases, lanes);
  store_rounded({_mm512_fmadd_ps(u.low, weight.low, bias.low), _mm512_fmadd_ps(u.high, weight.high, bias.high)}, lanes,
                to);
}

template <bool kWhole>
XFORMER_BY_BF16_512 void norm_rows_of(const BlockForward<c10::BFloat16>& given, float* wide, int64_t stride) {
  const BlockForward<c10::BFloat16> block = given;  // our own: no store can change it
  const int64_t width = block.width;
  const Drop drop = drop_of(block.drop);
  const __m512 count = _mm512_set1_ps(static_cast<float>(width)), one = _mm512_set1_ps(1);
  for (int64_t first = 0; first < block.rows; first += kRows) {
    const int64_t rows = std::min(kRows, block.rows - first);
    alignas(64) float means[kRows], rstds[kRows];
    __m512 parts[kRows];
    for (int64_t r = rows; r < kRows; ++r) parts[r] = _mm512_setzero_ps();
    for (int64_t r = 0; r < rows; ++r)
      parts[r] = joined(sums_of<kWhole>(block, (first + r) * width, drop, wide + r * stride));
    if (block.normed == nullptr) continue;
    _mm512_store_ps(means, _mm512_div_ps(totals(parts), count));
    for (int64_t r = 0; r < rows; ++r) {
      const float* const row = wide + r * stride;
      const __m512 mean = _mm512_set1_ps(means[r]);
      Lanes32 squares = {_mm512_setzero_ps(), _mm512_setzero_ps()};
      for (int64_t i = 0; i < width; i += kStep) {
        const __mmask32 lanes = lanes_of_step<kWhole>(width - i);
        const Lanes32 u = normal(floats_by_512(row + i, lanes), lanes, mean, one);
        squares = {_mm512_fmadd_ps(u.low, u.low, squares.low), _mm512_fmadd_ps(u.high, u.high, squares.high)};
      }
      parts[r] = joined(squares);
    }
    const __m512 variance = _mm512_add_ps(_mm512_div_ps(totals(parts), count), _mm512_set1_ps(block.epsilon));
    _mm512_store_ps(rstds, _mm512_div_ps(one, _mm512_sqrt_ps(variance)));
    for (int64_t r = 0; r < rows; ++r) {
      const float* const row = wide + r * stride;
      c10::BFloat16* const normed = block.normed + (first + r) * width;
      const __m512 mean = _mm512_set1_ps(means[r]), rstd = _mm512_set1_ps(rstds[r]);
      for (int64_t i = 0; i < width; i += kStep) {
        const __mmask32 lanes = lanes_of_step<kWhole>(width - i);
        store_normed(normal(floats_by_512(row + i, lanes), lanes, mean, rstd), block.weight + i, block.bias + i, lanes,
                     normed + i);
      }
    }
    std::copy_n(means, rows, block.mean + first);
    std::copy_n(rstds, rows, block.rstd + first);
  }
}

template <bool kWhole>
XFORMER_BY_BF16_512 void norm_rows_again_of(const BlockForward<c10::BFloat16>& given) {
  const BlockForward<c10::BFloat16> block = given;
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t at = r * block.width;
    const __m512 mean = _mm512_set1_ps(block.mean[r]), rstd = _mm512_set1_ps(block.rstd[r]);
    for (int64_t i = 0; i < block.width; i += kStep) {
      const __mmask32 lanes = lanes_of_step<kWhole>(block.width - i);
      fetch_to_read(block.x + at + i);
      store_normed(normal(widened_by_512(block.x + at + i, lanes), lanes, mean, rstd), block.weight + i, block.bias + i,
                   lanes, block.normed + at + i);
    }
  }
}

template <bool kWhole>
XFORMER_BY_BF16_512 void norm_gradient_rows_of(const BlockBackward<c10::BFloat16>& given) {
  const BlockBackward<c10::BFloat16> block = given;
  const int64_t width = block.width;
  const Drop drop = drop_of(block.drop);
  float shift[kRows], slope[kRows];
  for (int64_t first = 0; first < block.rows; first += kRows) {
    const int64_t rows = std::min(kRows, block.rows - first);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = (first + r) * width;
      const __m512 mean = _mm512_set1_ps(block.mean[first + r]), rstd = _mm512_set1_ps(block.rstd[first + r]);
      Lanes32 shifts = {_mm512_setzero_ps(), _mm512_setzero_ps()}, slopes = shifts;
      for (int64_t i = 0; i < width; i += kStep) {
        const __mmask32 lanes = lanes_of_step<kWhole>(width - i);
        fetch_to_read(block.sum + at + i);
        fetch_to_read(block.normed_gradient + at + i);
        if (block.sum_gradient != nullptr) fetch_to_read(block.sum_gradient + at + i);
        const Lanes32 u = normal(widened_by_512(block.sum + at + i, lanes), lanes, mean, rstd),
                      dy = widened_by_512(block.normed_gradient + at + i, lanes),
                      weight = floats_by_512(block.weight + i, lanes);
        const Lanes32 g = {_mm512_mul_ps(dy.low, weight.low), _mm512_mul_ps(dy.high, weight.high)};
        shifts = added(shifts, g);
        slopes = {_mm512_fmadd_ps(g.low, u.low, slopes.low), _mm512_fmadd_ps(g.high, u.high, slopes.high)};
      }
      const auto count = static_cast<float>(width);
      shift[r] = _mm512_reduce_add_ps(joined(shifts)) / count, slope[r] = _mm512_reduce_add_ps(joined(slopes)) / count;
    }
    // 32 columns of all these rows at a time, so that the sums over rows stay in registers.
    for (int64_t i = 0; i < width; i += kStep) {
      const __mmask32 lanes = lanes_of_step<kWhole>(width - i);
      const Lanes32 weight = floats_by_512(block.weight + i, lanes);
      Lanes32 d_weight = floats_by_512(block.weight_gradient + i, lanes),
              d_bias = floats_by_512(block.bias_gradient + i, lanes);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t at = (first + r) * width + i;
        const __m512 rstd = _mm512_set1_ps(block.rstd[first + r]), shifts = _mm512_set1_ps(shift[r]),
                     slopes = _mm512_set1_ps(slope[r]);
        const Lanes32 u = normal(widened_by_512(block.sum + at, lanes), lanes, _mm512_set1_ps(block.mean[first + r]),
                                 rstd),
                      dy = widened_by_512(block.normed_gradient + at, lanes);
        Lanes32 dx = {
            _mm512_mul_ps(rstd, _mm512_fnmadd_ps(u.low, slopes, _mm512_fmsub_ps(dy.low, weight.low, shifts))),
            _mm512_mul_ps(rstd, _mm512_fnmadd_ps(u.high, slopes, _mm512_fmsub_ps(dy.high, weight.high, shifts)))};
        if (block.sum_gradient != nullptr) dx = added(dx, widened_by_512(block.sum_gradient + at, lanes));
        store_rounded(dx, lanes, block.x_gradient + at);
        if (block.branch_gradient != nullptr)
          store_rounded(dropped(dx, block.drop.draws + at, lanes, drop), lanes, block.branch_gradient + at);
        d_weight = {_mm512_fmadd_ps(dy.low, u.low, d_weight.low), _mm512_fmadd_ps(dy.high, u.high, d_weight.high)};
        d_bias = added(d_bias, dy);
      }
      const auto put = [&](const Lanes32& x, float* to) __attribute__((always_inline)) XFORMER_BY_BF16_512 {
        _mm512_mask_storeu_ps(to, low_of(lanes), x.low);
        _mm512_mask_storeu_ps(to + kStep / 2, high_of(lanes), x.high);
      };
      put(d_weight, block.weight_gradient + i);
      put(d_bias, block.bias_gradient + i);
    }
  }
}

}  // namespace

void norm_block(const BlockForward<c10::BFloat16>& block, std::vector<float>& room) {
  const int64_t stride = (block.width + kStep - 1) / kStep * kStep;
  float* const wide = grown(room, kRows * stride);
  if (stride == block.width) norm_rows_of<true>(block, wide, stride);
  else norm_rows_of<false>(block, wide, stride);
}

void norm_block_again(const BlockForward<c10::BFloat16>& block) {
  if (block.width % kStep == 0) norm_rows_again_of<true>(block);
  else norm_rows_again_of<false>(block);
}

void norm_gradient_block(const BlockBackward<c10::BFloat16>& block) {
  if (block.width % kStep == 0) norm_gradient_rows_of<true>(block);
  else norm_gradient_rows_of<false>(block);
}

XFORMER_BY_BF16_512 void drop_rows(const c10::BFloat16* in, const DropRule& rule, int64_t count, c10::BFloat16* out) {
  const Drop drop = drop_of(rule);
  for (int64_t i = 0; i < count; i += kStep) {
    const __mmask32 lanes = lanes32_of(count - i);
    fetch_to_read(in + i);
    store_rounded(dropped(widened_by_512(in + i, lanes), rule.draws + i, lanes, drop), lanes, out + i);
  }
}

#else

// For the linker: has_bf16_512() is false here.
void drop_rows(const c10::BFloat16*, const DropRule&, int64_t, c10::BFloat16*) {}
void norm_block(const BlockForward<c10::BFloat16>&, std::vector<float>&) {}
void norm_block_again(const BlockForward<c10::BFloat16>&) {}
void norm_gradient_block(const BlockBackward<c10::BFloat16>&) {}

#endif

}  // namespace xformer::kernels::by_512
