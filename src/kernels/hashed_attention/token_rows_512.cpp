#include "kernels/cpu/rounding.h"
#include "kernels/hashed_attention/token_rows.h"

namespace xformer::kernels::by_512 {

#ifdef XFORMER_BY_BF16_512

namespace {

constexpr int64_t kStep = 32;

XFORMER_BY_BF16_512 [[gnu::always_inline]] inline __m512 with_products(const __m512& sum, const Lanes32& a,
                                                                       const Lanes32& b) {
  return _mm512_fmadd_ps(a.high, b.high, _mm512_fmadd_ps(a.low, b.low, sum));
}

}  // namespace

XFORMER_BY_512 int64_t digit_of(const float* x, int64_t count) {
  const __m512 none = _mm512_set1_ps(-1);  // what is no number, and what is not there, is smaller than any
  const auto sizes = [&](int64_t first) __attribute__((always_inline)) XFORMER_BY_512 {
    const __mmask16 lanes = lanes_of(count - first);
    const __m512 size = _mm512_abs_ps(_mm512_maskz_loadu_ps(lanes, x + first));
    return _mm512_mask_mov_ps(none, _mm512_mask_cmp_ps_mask(lanes, size, size, _CMP_ORD_Q), size);
  };
  __m512 most = none;
  for (int64_t first = 0; first < count; first += 16) most = _mm512_max_ps(most, sizes(first));
  const __m512 largest = _mm512_set1_ps(_mm512_reduce_max_ps(most));
  if (_mm512_cmp_ps_mask(largest, none, _CMP_EQ_OQ) != 0) return 0;
  // Without a branch on the row's numbers, which would go wrong every other time, in rows of up to 64.
  int64_t place = 0;
  for (int64_t block = 0; block < count; block += 64) {
    uint64_t found = 0;
    for (int64_t i = 0; i < 64 && block + i < count; i += 16)
      found |= static_cast<uint64_t>(_mm512_cmp_ps_mask(sizes(block + i), largest, _CMP_EQ_OQ)) << i;
    if (found == 0) continue;
    place = block + __builtin_ctzll(found);
    break;
  }
  return place + static_cast<int64_t>(x[place] < 0) * count;
}

XFORMER_BY_BF16_512 void gather_scaled(const c10::BFloat16* from, int64_t stride, int64_t width, const int32_t* tokens,
                                       int64_t count, const float* factors, c10::BFloat16* rows,
                                       c10::BFloat16* scaled) {
  constexpr int64_t kAhead = 16;  // as in gather_rows()
  for (int64_t r = 0; r < count; ++r, rows += width, scaled += width) {
    if (r + kAhead < count && tokens[r + kAhead] >= 0) __builtin_prefetch(from + tokens[r + kAhead] * stride);
    const bool there = tokens[r] >= 0;
    const c10::BFloat16* const token = from + (there ? tokens[r] : 0) * stride;
    const __m512 factor = _mm512_set1_ps(there ? factors[tokens[r]] : 0.0F);
    for (int64_t i = 0; i < width; i += kStep) {
      const __mmask32 lanes = lanes32_of(width - i);
      const __m512i bits = _mm512_maskz_loadu_epi16(there ? lanes : __mmask32{0}, token + i);
      store_bits(bits, lanes, rows + i);
      const Lanes32 x = widened_by_512(bits);
      store_rounded({_mm512_mul_ps(x.low, factor), _mm512_mul_ps(x.high, factor)}, lanes, scaled + i);
    }
  }
}

XFORMER_BY_BF16_512 void store_gradients(const QueryGradients& from, c10::BFloat16* to, int64_t stride) {
  const int64_t width = from.width;
  const c10::BFloat16* q = from.q;
  for (int64_t r = 0; r < from.count; ++r, q += from.stride, to += stride) {
    const float *const own = from.own + r * width, *const keys = from.keys + r * width;
    const bool counts = from.valid == nullptr || from.valid[r];  // or anything may lie there, also NaN
    const auto of = [&](int64_t i) { return counts ? lanes32_of(width - i) : __mmask32{0}; };
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < width; i += kStep)
      sum = with_products(sum, widened_by_512(q + i, of(i)), floats_by_512(keys + i, of(i)));
    const float factor = counts ? from.factors[r] : 0;
    const __m512 along = _mm512_set1_ps(_mm512_reduce_add_ps(sum) * factor * factor), factors = _mm512_set1_ps(factor);
    for (int64_t i = 0; i < width; i += kStep) {
      const Lanes32 x = widened_by_512(q + i, of(i)), k = floats_by_512(keys + i, of(i)),
                    mine = floats_by_512(own + i, of(i));
      store_rounded({_mm512_fmadd_ps(factors, _mm512_fnmadd_ps(x.low, along, k.low), mine.low),
                     _mm512_fmadd_ps(factors, _mm512_fnmadd_ps(x.high, along, k.high), mine.high)},
                    lanes32_of(width - i), to + i);
    }
  }
}

#else

// For the linker: has_512() is false here.
int64_t digit_of(const float*, int64_t) { return 0; }
void gather_scaled(const c10::BFloat16*, int64_t, int64_t, const int32_t*, int64_t, const float*, c10::BFloat16*,
                   c10::BFloat16*) {}
void store_gradients(const QueryGradients&, c10::BFloat16*, int64_t) {}

#endif

}  // namespace xformer::kernels::by_512
