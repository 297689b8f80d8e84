// The loops over a tile of features by AVX-512 (tiles.h): rows side by side, so that what all of them are multiplied
// by, and what all are added to, is read and written once for several.
#include <algorithm>
#include <type_traits>

#include "kernels/feature_attention/feature_lanes_512.h"
#include "kernels/feature_attention/tiles.h"

namespace xformer::kernels::by_512 {

#ifdef XFORMER_BY_512

namespace {

constexpr int kTogether = 4;

// So many rows that follow each other.
template <int kRows>
struct Rows {
  __m512 of[kRows];
};

// One number of each row, in all lanes; 1 where there are none.
template <int kRows>
XFORMER_BY_512 [[gnu::always_inline]] inline Rows<kRows> spread(const float* numbers, float factor) {
  Rows<kRows> result;
  for (int r = 0; r < kRows; ++r) result.of[r] = _mm512_set1_ps(numbers == nullptr ? 1.0F : factor * numbers[r]);
  return result;
}
template <FeatureMap kMap, int kRows>
XFORMER_BY_512 [[gnu::always_inline]] inline Rows<kRows> shifts(const float* shift) {
  return spread<kRows>(kMap == FeatureMap::kSoftmax ? shift : nullptr, static_cast<float>(kLog2OfE));
}

// What the loops below are given.
struct FloatTile {
  float* y;
  int64_t f;
  const float* shift;
  float floor;
};

template <FeatureMap kMap, int kRows, bool kWhole>
XFORMER_BY_512 [[gnu::always_inline]] inline void keys_at(const FloatTile& tile, int64_t i, Columns<kWhole> columns,
                                                          const Rows<kRows>& shift, float* sums) {
  const __m512 floor = _mm512_set1_ps(tile.floor);
  __m512 sum = columns.of(sums + i);
  for (int r = 0; r < kRows; ++r) {
    float* const place = tile.y + r * tile.f + i;
    const __m512 value = feature_of<kMap>(columns.of(place), shift.of[r], floor).value;
    columns.put(value, place);
    sum = _mm512_add_ps(sum, value);
  }
  columns.put(sum, sums + i);
}

template <FeatureMap kMap, int kRows, bool kWhole>
XFORMER_BY_512 [[gnu::always_inline]] inline void queries_at(const FloatTile& tile, int64_t i, Columns<kWhole> columns,
                                                             const Rows<kRows>& shift, const float* sums,
                                                             Rows<kRows>& dots) {
  const __m512 floor = _mm512_set1_ps(tile.floor), sum = columns.of(sums + i);
  for (int r = 0; r < kRows; ++r) {
    float* const place = tile.y + r * tile.f + i;
    const __m512 value = columns.alone(feature_of<kMap>(columns.of(place), shift.of[r], floor).value);
    columns.put(value, place);
    dots.of[r] = _mm512_fmadd_ps(value, sum, dots.of[r]);
  }
}

struct FloatSlopes {
  float* slope;
  const float* sums;
  float* d_sums;  // or nullptr
};

template <FeatureMap kMap, int kRows, bool kWhole>
XFORMER_BY_512 [[gnu::always_inline]] inline void gradients_at(const FloatTile& tile, const FloatSlopes& slopes,
                                                               int64_t i, Columns<kWhole> columns,
                                                               const Rows<kRows>& shift, const Rows<kRows>& times,
                                                               Rows<kRows>& totals) {
  const __m512 floor = _mm512_set1_ps(tile.floor), sums = columns.of(slopes.sums + i);
  __m512 d_sums = slopes.d_sums == nullptr ? _mm512_setzero_ps() : columns.of(slopes.d_sums + i);
  for (int r = 0; r < kRows; ++r) {
    float *const place = tile.y + r * tile.f + i, *const slope = slopes.slope + r * tile.f + i;
    const Feature feature = feature_of<kMap>(columns.of(place), shift.of[r], floor);
    const __m512 gradient =
        columns.alone(_mm512_mul_ps(_mm512_fmadd_ps(times.of[r], sums, columns.of(slope)), feature.slope));
    columns.put(feature.value, place);
    columns.put(gradient, slope);
    totals.of[r] = _mm512_add_ps(totals.of[r], gradient);
    d_sums = _mm512_fmadd_ps(times.of[r], feature.value, d_sums);
  }
  if (slopes.d_sums != nullptr) columns.put(d_sums, slopes.d_sums + i);
}

// step(first column, columns)
template <class Step>
XFORMER_BY_512 [[gnu::always_inline]] inline void for_columns(int64_t f, const Step& step) {
  int64_t i = 0;
  for (; i + kColumnLanes <= f; i += kColumnLanes) step(i, Columns<true>());
  if (i < f) step(i, Columns<false>{lanes_of(f - i)});
}

template <FeatureMap kMap, int kRows>
XFORMER_BY_512 [[gnu::always_inline]] inline void keys(const FloatTile& tile, float* sums) {
  const Rows<kRows> shift = shifts<kMap, kRows>(tile.shift);
  for_columns(
      tile.f, [&](int64_t i, auto columns) __attribute__((always_inline))
              XFORMER_BY_512 { keys_at<kMap>(tile, i, columns, shift, sums); });
}

template <FeatureMap kMap, int kRows>
XFORMER_BY_512 [[gnu::always_inline]] inline void queries(const FloatTile& tile, const float* sums, float* to) {
  const Rows<kRows> shift = shifts<kMap, kRows>(tile.shift);
  Rows<kRows> dots{};
  for_columns(
      tile.f, [&](int64_t i, auto columns) __attribute__((always_inline))
              XFORMER_BY_512 { queries_at<kMap>(tile, i, columns, shift, sums, dots); });
  for (int r = 0; r < kRows; ++r) to[r] = _mm512_reduce_add_ps(dots.of[r]);
}

template <FeatureMap kMap, int kRows>
XFORMER_BY_512 [[gnu::always_inline]] inline void gradients(const FloatTile& tile, const FloatSlopes& slopes,
                                                            const float* factor, float* row_sums) {
  const Rows<kRows> shift = shifts<kMap, kRows>(tile.shift), times = spread<kRows>(factor, 1);
  Rows<kRows> totals{};
  for_columns(
      tile.f, [&](int64_t i, auto columns) __attribute__((always_inline))
              XFORMER_BY_512 { gradients_at<kMap>(tile, slopes, i, columns, shift, times, totals); });
  for (int r = 0; r < kRows; ++r) row_sums[r] = _mm512_reduce_add_ps(totals.of[r]);
}

// work(first row, integral constant of their count) for rows that all count; those that do not are left out.
template <class Work>
XFORMER_BY_512 [[gnu::always_inline]] inline void for_rows(int64_t rows, const bool* valid, const Work& work) {
  const auto counts = [valid](int64_t r) { return valid == nullptr || valid[r]; };
  for (int64_t r = 0; r < rows;) {
    int together = 0;
    while (together < kTogether && r + together < rows && counts(r + together)) ++together;
    if (together == kTogether) work(r, std::integral_constant<int, kTogether>());
    else
      for (int64_t one = r; one < r + together; ++one) work(one, std::integral_constant<int, 1>());
    r += together;
    if (together < kTogether) ++r;  // one that does not count, or the end
  }
}

XFORMER_BY_512 [[gnu::always_inline]] inline void clear_invalid(float* x, int64_t rows, int64_t width,
                                                                const bool* valid) {
  for (int64_t r = 0; valid != nullptr && r < rows; ++r)
    if (!valid[r]) std::fill_n(x + r * width, width, 0.0F);
}

// As work(integral constant of the map).
template <class Work>
XFORMER_BY_512 [[gnu::always_inline]] inline void for_map(FeatureMap map, const Work& work) {
  if (map == FeatureMap::kSoftmax) work(std::integral_constant<FeatureMap, FeatureMap::kSoftmax>());
  else if (map == FeatureMap::kElu) work(std::integral_constant<FeatureMap, FeatureMap::kElu>());
  else work(std::integral_constant<FeatureMap, FeatureMap::kRelu>());
}

}  // namespace

XFORMER_BY_512 void features_of_keys(FeatureMap map, float* tile, int64_t rows, int64_t f, const float* shift,
                                     const bool* valid, float floor, float* sums) {
  clear_invalid(tile, rows, f, valid);
  for_map(
      map, [&](auto of) __attribute__((always_inline)) XFORMER_BY_512 {
        for_rows(
            rows, valid, [&](int64_t r, auto count) __attribute__((always_inline)) XFORMER_BY_512 {
              keys<of.value, count.value>({tile + r * f, f, shift + r, floor}, sums);
            });
      });
}

XFORMER_BY_512 void features_of_queries(FeatureMap map, float* tile, int64_t rows, int64_t f, const float* shift,
                                        float floor, const float* sums, float* dots) {
  for_map(
      map, [&](auto of) __attribute__((always_inline)) XFORMER_BY_512 {
        for_rows(
            rows, nullptr, [&](int64_t r, auto count) __attribute__((always_inline)) XFORMER_BY_512 {
              queries<of.value, count.value>({tile + r * f, f, shift + r, floor}, sums, dots + r);
            });
      });
}

XFORMER_BY_512 void gradients_of_features(FeatureMap map, float* tile, float* gradient, int64_t rows, int64_t f,
                                          const float* shift, const bool* valid, float floor, const float* sums,
                                          const float* factor, float* d_sums, float* row_sums) {
  clear_invalid(tile, rows, f, valid);
  clear_invalid(gradient, rows, f, valid);
  clear_invalid(row_sums, rows, 1, valid);
  for_map(
      map, [&](auto of) __attribute__((always_inline)) XFORMER_BY_512 {
        for_rows(
            rows, valid, [&](int64_t r, auto count) __attribute__((always_inline)) XFORMER_BY_512 {
              gradients<of.value, count.value>({tile + r * f, f, shift + r, floor}, {gradient + r * f, sums, d_sums},
                                               factor == nullptr ? nullptr : factor + r, row_sums + r);
            });
      });
}

#else

// For the linker: has_512() is false here.
void features_of_keys(FeatureMap, float*, int64_t, int64_t, const float*, const bool*, float, float*) {}
void features_of_queries(FeatureMap, float*, int64_t, int64_t, const float*, float, const float*, float*) {}
void gradients_of_features(FeatureMap, float*, float*, int64_t, int64_t, const float*, const bool*, float, const float*,
                           const float*, float*, float*) {}

#endif

}  // namespace xformer::kernels::by_512
