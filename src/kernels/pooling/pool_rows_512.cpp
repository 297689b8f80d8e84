// Rows of pooling in bf16 by AVX-512: numbers are widened, added and rounded in registers.
#include "kernels/cpu/rounding.h"
#include "kernels/pooling/cpu.h"

namespace xformer::kernels::by_512 {

#ifdef XFORMER_BY_BF16_512

namespace {

constexpr int64_t kPooledAtOnce = 32;

}  // namespace

XFORMER_BY_BF16_512 int64_t sum_rows(const c10::BFloat16* x, const RowSet& set, float* out) {
  for (int64_t c = 0; c < set.columns; c += kPooledAtOnce) {
    const __mmask32 lanes = lanes32_of(set.columns - c);
    Apart32 sum = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int64_t i = 0; i < set.rows; ++i) {
      if (!set.counts(i)) continue;
      fetch_to_read(x + i * set.stride + c);
      const Apart32 row = apart_by_512(x + i * set.stride + c, lanes);
      sum = {_mm512_add_ps(sum.even, row.even), _mm512_add_ps(sum.odd, row.odd)};
    }
    put_together(sum, lanes, out + c);
  }
  int64_t count = 0;
  for (int64_t i = 0; i < set.rows; ++i) count += set.counts(i) ? 1 : 0;
  return count;
}

XFORMER_BY_BF16_512 void add_to_rows(const float* row, float factor, const RowSet& set, c10::BFloat16* out) {
  const __m512 share = _mm512_set1_ps(factor);
  for (int64_t c = 0; c < set.columns; c += kPooledAtOnce) {
    const __mmask32 lanes = lanes32_of(set.columns - c);
    const Apart32 all = apart_by_512(row + c, lanes),
                  own = {_mm512_mul_ps(all.even, share), _mm512_mul_ps(all.odd, share)};
    for (int64_t i = 0; i < set.rows; ++i) {
      if (!set.counts(i)) continue;
      c10::BFloat16* const to = out + i * set.stride + c;
      fetch_to_read(to);
      const Apart32 x = apart_by_512(to, lanes);
      round_together({_mm512_add_ps(x.even, own.even), _mm512_add_ps(x.odd, own.odd)}, lanes, to);
    }
  }
}

#else

// For the linker: has_bf16_512() is false here.
int64_t sum_rows(const c10::BFloat16*, const RowSet&, float*) { return 0; }
void add_to_rows(const float*, float, const RowSet&, c10::BFloat16*) {}

#endif

}  // namespace xformer::kernels::by_512
