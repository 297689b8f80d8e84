// The largest of a tile's rows by AVX-512 (kernels/cpu/lanes_512.h).
#include "kernels/cpu/lanes_512.h"
#include "kernels/cpu/vectorised.h"
#include "kernels/feature_attention/tiles.h"

namespace xformer::kernels::by_512 {

#ifdef XFORMER_BY_512

namespace {

XFORMER_BY_512 [[gnu::always_inline]] inline float largest_number(const float* row, int64_t f) {
  __m512 most = _mm512_set1_ps(row[0]);
  int64_t i = 0;
  for (; i + kSumLanes <= f; i += kSumLanes) most = _mm512_max_ps(most, _mm512_loadu_ps(row + i));
  if (const __mmask16 lanes = lanes_of(f - i); lanes != 0)
    most = _mm512_mask_max_ps(most, lanes, most, _mm512_maskz_loadu_ps(lanes, row + i));
  return _mm512_reduce_max_ps(most);
}

// The first place of `number`; -1: nowhere.
XFORMER_BY_512 [[gnu::always_inline]] inline int64_t place_of_number(float number, const float* row, int64_t f) {
  const __m512 numbers = _mm512_set1_ps(number);
  for (int64_t i = 0; i < f; i += kSumLanes) {
    const __mmask16 lanes = lanes_of(f - i);
    const __mmask16 found = _mm512_mask_cmp_ps_mask(lanes, _mm512_maskz_loadu_ps(lanes, row + i), numbers, _CMP_EQ_OQ);
    if (found != 0) return i + __builtin_ctz(found);
  }
  return -1;
}

}  // namespace

XFORMER_BY_512 void largest_of_rows(const float* tile, int64_t rows, int64_t f, float* largest, int64_t* winners) {
  for (int64_t r = 0; r < rows; ++r) largest[r] = largest_number(tile + r * f, f);
  if (winners == nullptr) return;
  for (int64_t r = 0; r < rows; ++r) winners[r] = place_of_number(largest[r], tile + r * f, f);
}

#else

// For the linker: has_512() is false here.
void largest_of_rows(const float*, int64_t, int64_t, float*, int64_t*) {}

#endif

}  // namespace xformer::kernels::by_512
