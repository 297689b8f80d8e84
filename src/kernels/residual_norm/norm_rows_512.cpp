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

XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Apart32 added(const Apart32& a, const Apart32& b) {
  return {_mm512_add_ps(a.even, b.even), _mm512_add_ps(a.odd, b.odd)};
}
// Where they stay apart: those at even places first.
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Apart32 apart_at(const float* from) {
  return {_mm512_loadu_ps(from), _mm512_loadu_ps(from + kStep / 2)};
}
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void store_apart(const Apart32& x, float* to) {
  _mm512_storeu_ps(to, x.even);
  _mm512_storeu_ps(to + kStep / 2, x.odd);
}
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Apart32 times(const Apart32& x, const __m512& factor) {
  return {_mm512_mul_ps(x.even, factor), _mm512_mul_ps(x.odd, factor)};
}

// 32 numbers of bf16, and what dropout leaves of them, before they are scaled.
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline __m512i kept_of(const __m512i& bits, const uint16_t* draws,
                                                                  __mmask32 lanes, const Drop& drop) {
  const __mmask32 kept = _mm512_cmpge_epu16_mask(_mm512_maskz_loadu_epi16(lanes, draws), drop.threshold);
  return _mm512_and_si512(bits, _mm512_movm_epi16(kept));
}
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Apart32 dropped(const c10::BFloat16* from, const uint16_t* draws,
                                                                  __mmask32 lanes, const Drop& drop) {
  return times(apart_by_512(kept_of(_mm512_maskz_loadu_epi16(lanes, from), draws, lanes, drop)), drop.keep);
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

XFORMER_BY_BF16_512 [[gnu::always_inline]] inline __m512 joined(const Apart32& x) {
  return _mm512_add_ps(x.even, x.odd);
}

// x - mean, 0 in lanes that are not there.
template <bool kWhole>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Apart32 centred(const Apart32& x, const LanesApart& lanes,
                                                                  const __m512& mean) {
  if constexpr (kWhole) return {_mm512_sub_ps(x.even, mean), _mm512_sub_ps(x.odd, mean)};
  else return {_mm512_maskz_sub_ps(lanes.even, x.even, mean), _mm512_maskz_sub_ps(lanes.odd, x.odd, mean)};
}

// The lanes of a step of which `left` numbers are left; all of them in rows of whole steps.
template <bool kWhole>
[[gnu::always_inline]] inline LanesApart lanes_of_step(int64_t left) {
  return kWhole ? LanesApart{~__mmask32{0}, kAllLanes, kAllLanes} : lanes_apart_of(std::min(left, kStep));
}

// sum = x + drop(branch), and before it is rounded, as it fell apart, to `wide` [rows, stride] unless that is nullptr.
template <bool kWhole>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void sum_rows_of(const BlockForward<c10::BFloat16>& block,
                                                                   int64_t first, int64_t rows, float* wide,
                                                                   int64_t stride) {
  const Drop drop = drop_of(block.drop);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < block.width; i += kStep) {
      const int64_t at = (first + r) * block.width + i;
      const __mmask32 lanes = lanes_of_step<kWhole>(block.width - i).all;
      fetch_to_read(block.x + at);
      fetch_to_read(block.branch + at);
      const Apart32 branch = block.drop.draws == nullptr
                                 ? apart_by_512(block.branch + at, lanes)
                                 : dropped(block.branch + at, block.drop.draws + at, lanes, drop);
      const Apart32 sum = added(apart_by_512(block.x + at, lanes), branch);
      round_together(sum, lanes, block.sum + at);
      if (wide == nullptr) continue;
      store_apart(sum, wide + r * stride + i);
    }
}

// normed = (x - mean) rstd weight + bias, of x by read(row of these, column, lanes). Column by column of registers,
// whose weights stay there.
template <bool kWhole, class Read>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void store_normed(const BlockForward<c10::BFloat16>& block,
                                                                    int64_t first, int64_t rows, const float* means,
                                                                    const float* rstds, const Read& read) {
  for (int64_t i = 0; i < block.width; i += kStep) {
    const LanesApart lanes = lanes_of_step<kWhole>(block.width - i);
    const Apart32 weight = apart_by_512(block.weight + i, lanes.all), bias = apart_by_512(block.bias + i, lanes.all);
    c10::BFloat16* const normed = block.normed + first * block.width + i;
    for (int64_t r = 0; r < rows; ++r) {
      const Apart32 x = read(r, i, lanes.all),
                    u = times(centred<kWhole>(x, lanes, _mm512_set1_ps(means[r])), _mm512_set1_ps(rstds[r]));
      round_together(
          Apart32{_mm512_fmadd_ps(u.even, weight.even, bias.even), _mm512_fmadd_ps(u.odd, weight.odd, bias.odd)},
          lanes.all, normed + r * block.width);
    }
  }
}

// Mean, rstd and norm of at most kRows rows, likewise.
template <bool kWhole, class Read>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void norm_tile(const BlockForward<c10::BFloat16>& block,
                                                                 int64_t first, int64_t rows, const Read& read) {
  const int64_t width = block.width;
  const __m512 count = _mm512_set1_ps(static_cast<float>(width));
  alignas(64) float means[kRows], rstds[kRows];
  __m512 parts[kRows];
  for (int64_t r = rows; r < kRows; ++r) parts[r] = _mm512_setzero_ps();
  for (int64_t r = 0; r < rows; ++r) {
    Apart32 all = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int64_t i = 0; i < width; i += kStep) all = added(all, read(r, i, lanes_of_step<kWhole>(width - i).all));
    parts[r] = joined(all);
  }
  _mm512_store_ps(means, _mm512_div_ps(totals(parts), count));
  for (int64_t r = 0; r < rows; ++r) {
    const __m512 mean = _mm512_set1_ps(means[r]);
    Apart32 squares = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int64_t i = 0; i < width; i += kStep) {
      const LanesApart lanes = lanes_of_step<kWhole>(width - i);
      const Apart32 x = centred<kWhole>(read(r, i, lanes.all), lanes, mean);
      squares = {_mm512_fmadd_ps(x.even, x.even, squares.even), _mm512_fmadd_ps(x.odd, x.odd, squares.odd)};
    }
    parts[r] = joined(squares);
  }
  const __m512 variance = _mm512_add_ps(_mm512_div_ps(totals(parts), count), _mm512_set1_ps(block.epsilon));
  _mm512_store_ps(rstds, _mm512_div_ps(_mm512_set1_ps(1), _mm512_sqrt_ps(variance)));
  store_normed<kWhole>(block, first, rows, means, rstds, read);
  std::copy_n(means, rows, block.mean + first);
  std::copy_n(rstds, rows, block.rstd + first);
}

template <bool kWhole>
XFORMER_BY_BF16_512 void norm_rows_of(const BlockForward<c10::BFloat16>& given, float* wide, int64_t stride) {
  const BlockForward<c10::BFloat16> block = given;  // our own: no store can change it
  if (block.normed == nullptr) return sum_rows_of<kWhole>(block, 0, block.rows, nullptr, 0);
  for (int64_t first = 0; first < block.rows; first += kRows) {
    const int64_t rows = std::min(kRows, block.rows - first);
    const auto sums = [=](int64_t r, int64_t i, __mmask32) __attribute__((always_inline)) XFORMER_BY_BF16_512 {
      return apart_at(wide + r * stride + i);
    };
    const c10::BFloat16* const x = block.x + first * block.width;
    const auto numbers = [ =, width = block.width ](int64_t r, int64_t i, __mmask32 lanes)
        __attribute__((always_inline)) XFORMER_BY_BF16_512 {
      fetch_to_read(x + r * width + i);
      return apart_by_512(x + r * width + i, lanes);
    };
    if (block.branch == nullptr) {
      norm_tile<kWhole>(block, first, rows, numbers);
    } else {
      sum_rows_of<kWhole>(block, first, rows, wide, stride);
      norm_tile<kWhole>(block, first, rows, sums);
    }
  }
}

template <bool kWhole>
XFORMER_BY_BF16_512 void norm_rows_again_of(const BlockForward<c10::BFloat16>& given) {
  const BlockForward<c10::BFloat16> block = given;
  const auto numbers = [&](int64_t r, int64_t i, __mmask32 lanes) __attribute__((always_inline)) XFORMER_BY_BF16_512 {
    fetch_to_read(block.x + r * block.width + i);
    return apart_by_512(block.x + r * block.width + i, lanes);
  };
  store_normed<kWhole>(block, 0, block.rows, block.mean, block.rstd, numbers);
}

// As residual_rows.cpp has it: with u = (x - mean) rstd and g = dy weight, dx = rstd (g - mean(g) - u mean(g u)) +
// past.
template <bool kWhole>
XFORMER_BY_BF16_512 void norm_gradient_rows_of(const BlockBackward<c10::BFloat16>& given, float* weights) {
  const BlockBackward<c10::BFloat16> block = given;
  const int64_t width = block.width;
  // As its numbers fall apart.
  for (int64_t i = 0; i < width; i += kStep)
    store_apart(apart_by_512(block.weight + i, lanes32_of(width - i)), weights + i);
  const auto weight_at = [=](int64_t i) __attribute__((always_inline)) XFORMER_BY_BF16_512 {
    return apart_at(weights + i);
  };
  const Drop drop = drop_of(block.drop);
  alignas(64) float shift[kRows], slope[kRows];  // rstd mean(g), rstd mean(g u)
  __m512 gradients[kRows], products[kRows];      // sums of g and g (x - mean)
  for (int64_t first = 0; first < block.rows; first += kRows) {
    const int64_t rows = std::min(kRows, block.rows - first);
    const auto fetch = [&](int64_t at) __attribute__((always_inline)) {
      fetch_to_read(block.sum + at);
      fetch_to_read(block.normed_gradient + at);
      if (block.sum_gradient != nullptr) fetch_to_read(block.sum_gradient + at);
    };
    for (int64_t r = rows; r < kRows; ++r) gradients[r] = products[r] = _mm512_setzero_ps();
    for (int64_t r = 0; r < rows; ++r) {
      const __m512 mean = _mm512_set1_ps(block.mean[first + r]);
      __m512 of_g = _mm512_setzero_ps(), of_products = of_g;
      for (int64_t i = 0; i < width; i += kStep) {
        const int64_t at = (first + r) * width + i;
        const LanesApart lanes = lanes_of_step<kWhole>(width - i);
        fetch(at);
        const Apart32 dy = apart_by_512(block.normed_gradient + at, lanes.all), weight = weight_at(i),
                      g = {_mm512_mul_ps(dy.even, weight.even), _mm512_mul_ps(dy.odd, weight.odd)},
                      x = centred<kWhole>(apart_by_512(block.sum + at, lanes.all), lanes, mean);
        of_g = _mm512_add_ps(of_g, joined(g));
        of_products = _mm512_fmadd_ps(g.even, x.even, _mm512_fmadd_ps(g.odd, x.odd, of_products));
      }
      gradients[r] = of_g, products[r] = of_products;
    }
    const __m512 rstd = _mm512_maskz_loadu_ps(lanes_of(rows), block.rstd + first),
                 share = _mm512_div_ps(rstd, _mm512_set1_ps(static_cast<float>(width)));
    _mm512_store_ps(shift, _mm512_mul_ps(totals(gradients), share));
    _mm512_store_ps(slope, _mm512_mul_ps(_mm512_mul_ps(totals(products), rstd), share));
    // 32 columns of all these rows at a time, so that the sums over rows stay in registers.
    for (int64_t i = 0; i < width; i += kStep) {
      const LanesApart lanes = lanes_of_step<kWhole>(width - i);
      const Apart32 weight = weight_at(i);
      Apart32 d_weight = apart_by_512(block.weight_gradient + i, lanes.all),
              d_bias = apart_by_512(block.bias_gradient + i, lanes.all);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t at = (first + r) * width + i;
        const __m512 scale = _mm512_set1_ps(block.rstd[first + r]), shifts = _mm512_set1_ps(shift[r]),
                     slopes = _mm512_set1_ps(slope[r]);
        const Apart32 u = times(centred<kWhole>(apart_by_512(block.sum + at, lanes.all), lanes,
                                                _mm512_set1_ps(block.mean[first + r])),
                                scale),
                      dy = apart_by_512(block.normed_gradient + at, lanes.all);
        Apart32 dx = {_mm512_fmsub_ps(_mm512_mul_ps(dy.even, weight.even), scale, shifts),
                      _mm512_fmsub_ps(_mm512_mul_ps(dy.odd, weight.odd), scale, shifts)};
        dx = {_mm512_fnmadd_ps(u.even, slopes, dx.even), _mm512_fnmadd_ps(u.odd, slopes, dx.odd)};
        if (block.sum_gradient != nullptr) dx = added(dx, apart_by_512(block.sum_gradient + at, lanes.all));
        round_together(dx, lanes.all, block.x_gradient + at);
        if (block.branch_gradient != nullptr) {
          const __m512i scaled = rounded_in_order(times(dx, drop.keep));
          store_bits(kept_of(scaled, block.drop.draws + at, lanes.all, drop), lanes.all, block.branch_gradient + at);
        }
        d_weight = {_mm512_fmadd_ps(dy.even, u.even, d_weight.even), _mm512_fmadd_ps(dy.odd, u.odd, d_weight.odd)};
        d_bias = added(d_bias, dy);
      }
      put_together(d_weight, lanes.all, block.weight_gradient + i);
      put_together(d_bias, lanes.all, block.bias_gradient + i);
    }
  }
}

// Room for rows of whole steps.
int64_t stride_of(int64_t width) { return (width + kStep - 1) / kStep * kStep; }

}  // namespace

void norm_block(const BlockForward<c10::BFloat16>& block, std::vector<float>& room) {
  const int64_t stride = stride_of(block.width);
  float* const wide = block.branch == nullptr || block.normed == nullptr ? nullptr : grown(room, kRows * stride);
  if (stride == block.width) norm_rows_of<true>(block, wide, stride);
  else norm_rows_of<false>(block, wide, stride);
}

void norm_block_again(const BlockForward<c10::BFloat16>& block) {
  if (block.width % kStep == 0) norm_rows_again_of<true>(block);
  else norm_rows_again_of<false>(block);
}

void norm_gradient_block(const BlockBackward<c10::BFloat16>& block, std::vector<float>& room) {
  const int64_t stride = stride_of(block.width);
  float* const weights = grown(room, stride);
  if (stride == block.width) norm_gradient_rows_of<true>(block, weights);
  else norm_gradient_rows_of<false>(block, weights);
}

XFORMER_BY_BF16_512 void drop_rows(const c10::BFloat16* in, const DropRule& rule, int64_t count, c10::BFloat16* out) {
  const Drop drop = drop_of(rule);
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    fetch_to_read(in + i);
    round_together(dropped(in + i, rule.draws + i, ~__mmask32{0}, drop), ~__mmask32{0}, out + i);
  }
  const __mmask32 last = lanes32_of(count - i);
  if (last != 0) round_together(dropped(in + i, rule.draws + i, last, drop), last, out + i);
}

#else

// For the linker: has_bf16_512() is false here.
void drop_rows(const c10::BFloat16*, const DropRule&, int64_t, c10::BFloat16*) {}
void norm_block(const BlockForward<c10::BFloat16>&, std::vector<float>&) {}
void norm_block_again(const BlockForward<c10::BFloat16>&) {}
void norm_gradient_block(const BlockBackward<c10::BFloat16>&, std::vector<float>&) {}

#endif

}  // namespace xformer::kernels::by_512
