// A row of attention over listed keys from its products to its last sum by AVX-512: what goes from one loop to the next
// stays in registers or the nearest cache, and no number is the sum of a loop that others wait for.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/lanes_512.h"
#include "kernels/listed_attention/listed_rows.h"

namespace xformer::kernels::by_512 {

#ifdef XFORMER_BY_512

namespace {

constexpr int64_t kStep = kListedLanes;

// Of vectors with a sum in the making in each quarter, what each pair of a quarter's numbers adds up to, a's and b's in
// turns.
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 half_quarters(const __m512& a, const __m512& b) {
  return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}
// Halves of a beside those of b, each half's upper part added to its lower one.
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 folded_halves(const __m512& a, const __m512& b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
}
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 folded_quarters(const __m512& a, const __m512& b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
}

// x . rows of four places, of which so many are left: a quarter of a vector is a sum in the making. A place without a
// row is read as the first.
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 four_products(const float* x, const ListedTable<const float>& table,
                                                                  const int64_t* places, int64_t left) {
  if (left <= 0) return _mm512_setzero_ps();
  const float* rows[4];
  __m512 sums[4];
  for (int64_t l = 0; l < 4; ++l) {
    const int64_t place = l < left ? places[l] : -1;
    rows[l] = table.row(place < 0 ? 0 : place);
    sums[l] = _mm512_setzero_ps();
  }
  for (int64_t c = 0; c < table.width; c += kStep) {
    const __m512 part = _mm512_loadu_ps(x + c);
    for (int64_t l = 0; l < 4; ++l) sums[l] = _mm512_fmadd_ps(part, _mm512_loadu_ps(rows[l] + c), sums[l]);
  }
  return folded_quarters(folded_halves(sums[0], sums[1]), folded_halves(sums[2], sums[3]));
}

// The same of the first `count` places, at most kStep, in as many lanes.
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 products(const float* x, const ListedTable<const float>& table,
                                                             const int64_t* places, int64_t count) {
  const __m512 low = half_quarters(four_products(x, table, places, count),
                                   four_products(x, table, places + 4, count - 4)),
               high = half_quarters(four_products(x, table, places + 8, count - 8),
                                    four_products(x, table, places + 12, count - 12));
  const __m512 sums =
      _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(low), _mm512_castps_pd(high))),
                    _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(low), _mm512_castps_pd(high))));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_ps(order, sums);
}

XFORMER_BY_512 [[gnu::always_inline]] inline __mmask16 there(const int64_t* places, int64_t count) {
  const __m512i none = _mm512_setzero_si512();
  const auto first = lanes_of(count);
  const auto low = static_cast<__mmask8>(first), high = static_cast<__mmask8>(first >> 8);
  const unsigned of_low = _mm512_mask_cmpge_epi64_mask(low, _mm512_maskz_loadu_epi64(low, places), none);
  if (high == 0) return static_cast<__mmask16>(of_low);
  return static_cast<__mmask16>(
      of_low |
      static_cast<unsigned>(_mm512_mask_cmpge_epi64_mask(high, _mm512_maskz_loadu_epi64(high, places + 8), none)) << 8);
}

// The logits of a row, those without a key -infinity; returns the largest.
XFORMER_BY_512 [[gnu::always_inline]] inline float logits_of(const ListedRow<float>& row, float* scores) {
  const __m512 never = _mm512_set1_ps(-__builtin_inff()), scale = _mm512_set1_ps(row.scale);
  __m512 largest = never;
  for (int64_t first = 0; first < row.count; first += kStep) {
    const int64_t left = row.count - first;
    const int64_t* const places = row.places + first;
    __m512 logits = _mm512_mul_ps(products(row.query, row.keys, places, left < kStep ? left : kStep), scale);
    if (row.bias != nullptr) logits = _mm512_add_ps(logits, _mm512_maskz_loadu_ps(lanes_of(left), row.bias + first));
    logits = _mm512_mask_mov_ps(never, there(places, left), logits);
    _mm512_storeu_ps(scores + first, logits);
    largest = _mm512_max_ps(logits, largest);
  }
  return _mm512_reduce_max_ps(largest);
}

// into = factor sum of weights[l] rows[l], of kVectors vectors of channels from `column` on.
template <int kVectors>
XFORMER_BY_512 [[gnu::always_inline]] inline void add_columns(const ListedRow<float>& row,
                                                              const ListedTable<const float>& table, int64_t column,
                                                              float factor, const float* weights, float* into) {
  __m512 sums[kVectors];
  for (int i = 0; i < kVectors; ++i) sums[i] = _mm512_setzero_ps();
  for (int64_t l = 0; l < row.count; ++l) {
    if (row.places[l] < 0) continue;
    const float* const from = table.row(row.places[l]) + column;
    const __m512 weight = _mm512_set1_ps(factor * weights[l]);
    for (int i = 0; i < kVectors; ++i) sums[i] = _mm512_fmadd_ps(_mm512_loadu_ps(from + kStep * i), weight, sums[i]);
  }
  for (int i = 0; i < kVectors; ++i) _mm512_storeu_ps(into + column + kStep * i, sums[i]);
}

// rows[l] += factor weights[l] x, likewise.
template <int kVectors>
XFORMER_BY_512 [[gnu::always_inline]] inline void add_to_columns(const ListedRow<float>& row, const float* x,
                                                                 int64_t column, float factor, const float* weights,
                                                                 const ListedTable<float>& table) {
  __m512 part[kVectors];
  for (int i = 0; i < kVectors; ++i) part[i] = _mm512_loadu_ps(x + column + kStep * i);
  for (int64_t l = 0; l < row.count; ++l) {
    if (row.places[l] < 0) continue;
    float* const to = table.row(row.places[l]) + column;
    const __m512 weight = _mm512_set1_ps(factor * weights[l]);
    for (int i = 0; i < kVectors; ++i)
      _mm512_storeu_ps(to + kStep * i, _mm512_fmadd_ps(part[i], weight, _mm512_loadu_ps(to + kStep * i)));
  }
}

}  // namespace

XFORMER_BY_512 float listed_row(const ListedRow<float>& row, float* scores, float* out) {
  const float largest = logits_of(row, scores);
  if (largest == -__builtin_inff()) {
    std::fill_n(out, row.values.width, 0.0F);
    return __builtin_inff();
  }
  const float sum = by_512::row_weights(scores, row.room(), row.weights(largest), scores);
  int64_t c = 0;
  for (; c + 2 * kStep <= row.values.width; c += 2 * kStep) add_columns<2>(row, row.values, c, 1 / sum, scores, out);
  if (c < row.values.width) add_columns<1>(row, row.values, c, 1 / sum, scores, out);
  return largest + std::log(sum);
}

XFORMER_BY_512 void listed_row_gradients(const ListedRow<float>& row, float log_sum,
                                         const ListedGradients<float>& given, float* scores, float* slopes) {
  (void)logits_of(row, scores);
  __m512 sums = _mm512_setzero_ps();
  for (int64_t c = 0; c < row.values.width; c += kStep)
    sums = _mm512_fmadd_ps(_mm512_loadu_ps(given.out + c), _mm512_loadu_ps(given.slope + c), sums);
  for (int64_t first = 0; first < row.count; first += kStep) {
    const int64_t left = row.count - first;
    const int64_t* const places = row.places + first;
    const __m512 of_weights = products(given.slope, row.values, places, left < kStep ? left : kStep);
    _mm512_storeu_ps(slopes + first, _mm512_maskz_mov_ps(there(places, left), of_weights));
  }
  by_512::row_gradients(scores, slopes, row.room(), row.weights(log_sum), _mm512_reduce_add_ps(sums), 1.0F);
  if (given.bias != nullptr) std::copy_n(slopes, row.count, given.bias);
  int64_t c = 0;
  for (; c + 2 * kStep <= row.keys.width; c += 2 * kStep) {
    add_columns<2>(row, row.keys, c, row.scale, slopes, given.q);
    add_to_columns<2>(row, row.query, c, row.scale, slopes, given.k);
  }
  if (c < row.keys.width) {
    add_columns<1>(row, row.keys, c, row.scale, slopes, given.q);
    add_to_columns<1>(row, row.query, c, row.scale, slopes, given.k);
  }
  for (c = 0; c + 2 * kStep <= row.values.width; c += 2 * kStep)
    add_to_columns<2>(row, given.slope, c, 1, scores, given.v);
  if (c < row.values.width) add_to_columns<1>(row, given.slope, c, 1, scores, given.v);
}

#else

// For the linker: has_512() is false here.
float listed_row(const ListedRow<float>&, float*, float*) { return 0; }
void listed_row_gradients(const ListedRow<float>&, float, const ListedGradients<float>&, float*, float*) {}

#endif

}  // namespace xformer::kernels::by_512
