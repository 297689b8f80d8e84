#include "kernels/feature_attention/feature_rows.h"

#include "kernels/cpu/rounding.h"
#include "kernels/feature_attention/feature_lanes_512.h"

namespace xformer::kernels::by_512 {

#ifdef XFORMER_BY_BF16_512

namespace {

constexpr int64_t kStep = 32;

// What all numbers of a row have in common.
struct Row {
  const float* y;
  const c10::BFloat16* x;
  __m512 shift, floor;
  bool counts;
};

XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Row row_of(const FeatureRows& rows, int64_t r) {
  // kSoftmax: e^(y - shift) by a power of two.
  const float shift = rows.map == FeatureMap::kSoftmax ? rows.shift[r] * static_cast<float>(kLog2OfE) : 0.0F;
  return {rows.y == nullptr ? nullptr : rows.y + r * rows.f, rows.x + r * rows.x_stride, _mm512_set1_ps(shift),
          _mm512_set1_ps(rows.floor), rows.valid == nullptr || rows.valid[r]};
}

// Columns of a row that may not count.
template <bool kWhole>
Columns<kWhole> counted(const Columns<kWhole>& columns, const Row& row) {
  return {kWhole || row.counts ? columns.lanes : __mmask16{0}};
}

template <FeatureMap kMap, bool kWhole>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Feature feature_at(const Row& row, int64_t i,
                                                                     const Columns<kWhole>& columns) {
  if (row.y == nullptr && i % kStep == 0) fetch_to_read(row.x + i);
  const __m512 y = row.y == nullptr ? widened_by_512(row.x + i, columns.lanes) : columns.of(row.y + i);
  const Feature feature = feature_of<kMap>(y, row.shift, row.floor);
  return {columns.alone(feature.value), feature.slope};
}

XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void store_pair(const __m512& first, const __m512& second,
                                                                  const __m512i& turns, uint32_t* to) {
  _mm512_storeu_si512(to, _mm512_permutexvar_epi16(turns, (__m512i)_mm512_cvtne2ps_pbh(second, first)));
}
template <bool kWhole>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void store_row(const __m512& x, const Columns<kWhole>& columns,
                                                                 c10::BFloat16* to) {
  const auto rounded = (__m256i)_mm512_cvtneps_pbh(x);
  if constexpr (kWhole) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded);
  else _mm256_mask_storeu_epi16(to, columns.lanes, rounded);
}
template <bool kWhole>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void add_to(float* sums, const Columns<kWhole>& columns,
                                                              const __m512& x) {
  columns.put(_mm512_add_ps(columns.of(sums), x), sums);
}

// step(column, columns) for a row's columns: 16 at a time where all count, else with the lanes that are there.
template <class Step>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void for_columns(bool counts, int64_t width, const Step& step) {
  int64_t i = 0;
  for (; counts && i + kColumnLanes <= width; i += kColumnLanes) step(i, Columns<true>());
  for (; i < width; i += kColumnLanes) step(i, Columns<false>{lanes_of(width - i)});
}

// Two rows, of which the second need not be there, and where numbers of theirs go in pairs.
struct RowPair {
  Row first, second;
  bool both;
  [[nodiscard]] bool count() const { return both && first.counts && second.counts; }
};
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline RowPair pair_of(const FeatureRows& rows, int64_t r) {
  const bool both = r + 1 < rows.rows;
  RowPair pair{row_of(rows, r), row_of(rows, both ? r + 1 : r), both};
  pair.second.counts = pair.second.counts && both;
  return pair;
}

template <FeatureMap kMap>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void keys_of(const FeatureRows& rows, PairedFactor& features,
                                                               float* sums) {
  const __m512i turns = turns_of_pairs();
  for (int64_t r = 0; r < rows.rows; r += 2) {
    const RowPair pair = pair_of(rows, r);
    for (int64_t panel = 0, width = 0; panel < rows.f; panel += width) {
      width = PairedFactor::panel_width(rows.f - panel);
      uint32_t* const to = features.pairs(r / 2, panel);
      for_columns(
          pair.count(), width, [&](int64_t i, const auto& columns) __attribute__((always_inline)) XFORMER_BY_BF16_512 {
            const __m512 one = feature_at<kMap>(pair.first, panel + i, counted(columns, pair.first)).value,
                         two = feature_at<kMap>(pair.second, panel + i, counted(columns, pair.second)).value;
            store_pair(one, two, turns, to + i);
            add_to(sums + panel + i, columns, _mm512_add_ps(one, two));
          });
    }
  }
}

template <FeatureMap kMap>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void queries_of(const FeatureRows& rows, const float* sums,
                                                                  c10::BFloat16* features, float* dots) {
  for (int64_t r = 0; r < rows.rows; ++r) {
    const Row row = row_of(rows, r);
    __m512 dot = _mm512_setzero_ps();
    for_columns(
        row.counts, rows.f, [&](int64_t i, const auto& columns) __attribute__((always_inline)) XFORMER_BY_BF16_512 {
          const __m512 value = feature_at<kMap>(row, i, counted(columns, row)).value;
          dot = _mm512_fmadd_ps(value, columns.of(sums + i), dot);
          store_row(value, columns, features + r * rows.f + i);
        });
    dots[r] = _mm512_reduce_add_ps(dot);
  }
}

// A row of gradients in the making.
struct Slopes {
  const float *slope, *sums;
  __m512 times;
  c10::BFloat16* to;
};

XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Slopes slopes_of(const FeatureSlopes& slopes, int64_t r, int64_t f) {
  return {slopes.slope + r * f, slopes.sums, _mm512_set1_ps(slopes.times == nullptr ? 1.0F : slopes.times[r]),
          slopes.gradient + r * slopes.stride};
}

// The gradient of y i .. i + 15, as `slope` of the features that it belongs to.
template <FeatureMap kMap, bool kWhole>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Feature gradient_at(const Row& row, const Slopes& slopes, int64_t i,
                                                                      const Columns<kWhole>& columns) {
  const Feature feature = feature_at<kMap>(row, i, columns);
  const __m512 whole = _mm512_fmadd_ps(slopes.times, columns.of(slopes.sums + i), columns.of(slopes.slope + i));
  return {feature.value, columns.alone(_mm512_mul_ps(whole, feature.slope))};
}

// What is left of a row once all of it is known.
template <FeatureMap kMap>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void finish(const FeatureRows& rows, const FeatureSlopes& slopes,
                                                              int64_t r, const Row& row, const Slopes& of_row,
                                                              const __m512& total) {
  if constexpr (kMap == FeatureMap::kSoftmax) {
    const float sum = _mm512_reduce_add_ps(total);
    slopes.row_sums[r] = sum;
    if (!row.counts || slopes.winners == nullptr || slopes.winners[r] < 0) return;
    const int64_t winner = slopes.winners[r], i = winner / kColumnLanes * kColumnLanes;
    const Feature again = gradient_at<kMap>(row, of_row, i, Columns<false>{lanes_of(rows.f - i)});
    alignas(64) float gradients[kColumnLanes];
    _mm512_store_ps(gradients, again.slope);
    of_row.to[winner] = c10::BFloat16(gradients[winner - i] - sum);
  }
}

template <FeatureMap kMap>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void query_slopes(const FeatureRows& rows,
                                                                    const FeatureSlopes& slopes, PairedFactor& features,
                                                                    float* d_sums) {
  const __m512i turns = turns_of_pairs();
  for (int64_t r = 0; r < rows.rows; r += 2) {
    const RowPair pair = pair_of(rows, r);
    const Slopes first = slopes_of(slopes, r, rows.f), second = slopes_of(slopes, pair.both ? r + 1 : r, rows.f);
    __m512 totals[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int64_t panel = 0, width = 0; panel < rows.f; panel += width) {
      width = PairedFactor::panel_width(rows.f - panel);
      uint32_t* const to = features.pairs(r / 2, panel);
      for_columns(
          pair.count(), width, [&](int64_t i, const auto& columns) __attribute__((always_inline)) XFORMER_BY_BF16_512 {
            const int64_t at = panel + i;
            const Feature one = gradient_at<kMap>(pair.first, first, at, counted(columns, pair.first)),
                          two = gradient_at<kMap>(pair.second, second, at, counted(columns, pair.second));
            store_pair(one.value, two.value, turns, to + i);
            store_row(one.slope, columns, first.to + at);
            if (pair.both) store_row(two.slope, columns, second.to + at);
            totals[0] = _mm512_add_ps(totals[0], one.slope), totals[1] = _mm512_add_ps(totals[1], two.slope);
            add_to(d_sums + at, columns,
                   _mm512_fmadd_ps(second.times, two.value, _mm512_mul_ps(first.times, one.value)));
          });
    }
    finish<kMap>(rows, slopes, r, pair.first, first, totals[0]);
    if (pair.both) finish<kMap>(rows, slopes, r + 1, pair.second, second, totals[1]);
  }
}

template <FeatureMap kMap>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void key_slopes(const FeatureRows& rows, const FeatureSlopes& slopes,
                                                                  c10::BFloat16* features) {
  for (int64_t r = 0; r < rows.rows; ++r) {
    const Row row = row_of(rows, r);
    const Slopes of_row = slopes_of(slopes, r, rows.f);
    __m512 total = _mm512_setzero_ps();
    for_columns(
        row.counts, rows.f, [&](int64_t i, const auto& columns) __attribute__((always_inline)) XFORMER_BY_BF16_512 {
          const Feature one = gradient_at<kMap>(row, of_row, i, counted(columns, row));
          store_row(one.value, columns, features + r * rows.f + i);
          store_row(one.slope, columns, of_row.to + i);
          total = _mm512_add_ps(total, one.slope);
        });
    finish<kMap>(rows, slopes, r, row, of_row, total);
  }
}

XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void store_lanes(const __m512& x, __mmask16 lanes,
                                                                   c10::BFloat16* to) {
  if (lanes == kAllLanes) store_row(x, Columns<true>(), to);
  else store_row(x, Columns<false>{lanes}, to);
}

}  // namespace

XFORMER_BY_BF16_512 void key_features(const FeatureRows& rows, PairedFactor& features, float* sums) {
  if (rows.map == FeatureMap::kSoftmax) keys_of<FeatureMap::kSoftmax>(rows, features, sums);
  else if (rows.map == FeatureMap::kElu) keys_of<FeatureMap::kElu>(rows, features, sums);
  else keys_of<FeatureMap::kRelu>(rows, features, sums);
}

XFORMER_BY_BF16_512 void query_features(const FeatureRows& rows, const float* sums, c10::BFloat16* features,
                                        float* dots) {
  if (rows.map == FeatureMap::kSoftmax) queries_of<FeatureMap::kSoftmax>(rows, sums, features, dots);
  else if (rows.map == FeatureMap::kElu) queries_of<FeatureMap::kElu>(rows, sums, features, dots);
  else queries_of<FeatureMap::kRelu>(rows, sums, features, dots);
}

XFORMER_BY_BF16_512 void query_gradients(const FeatureRows& rows, const FeatureSlopes& slopes, PairedFactor& features,
                                         float* d_sums) {
  if (rows.map == FeatureMap::kSoftmax) query_slopes<FeatureMap::kSoftmax>(rows, slopes, features, d_sums);
  else if (rows.map == FeatureMap::kElu) query_slopes<FeatureMap::kElu>(rows, slopes, features, d_sums);
  else query_slopes<FeatureMap::kRelu>(rows, slopes, features, d_sums);
}

XFORMER_BY_BF16_512 void key_gradients(const FeatureRows& rows, const FeatureSlopes& slopes, c10::BFloat16* features) {
  if (rows.map == FeatureMap::kSoftmax) key_slopes<FeatureMap::kSoftmax>(rows, slopes, features);
  else if (rows.map == FeatureMap::kElu) key_slopes<FeatureMap::kElu>(rows, slopes, features);
  else key_slopes<FeatureMap::kRelu>(rows, slopes, features);
}

XFORMER_BY_BF16_512 void quotient_gradients(const c10::BFloat16* gradient, int64_t gradient_stride,
                                            const c10::BFloat16* out, int64_t out_stride, int64_t rows, int64_t width,
                                            const float* divisor, const bool* valid, c10::BFloat16* numerator,
                                            float* sum) {
  for (int64_t r = 0; r < rows; ++r) {
    const __m512 factor = _mm512_set1_ps(1 / divisor[r]);
    const bool counts = valid == nullptr || valid[r];
    __m512 dot = _mm512_setzero_ps();
    for (int64_t i = 0; i < width; i += kColumnLanes) {
      const __mmask16 lanes = lanes_of(width - i), there = counts ? lanes : __mmask16{0};
      if (i % kStep == 0) fetch_to_read(gradient + r * gradient_stride + i), fetch_to_read(out + r * out_stride + i);
      const __m512 slope =
          _mm512_maskz_mul_ps(there, widened_by_512(gradient + r * gradient_stride + i, there), factor);
      dot = _mm512_fmadd_ps(slope, widened_by_512(out + r * out_stride + i, there), dot);
      store_lanes(slope, lanes, numerator + r * width + i);
    }
    sum[r] = counts ? -_mm512_reduce_add_ps(dot) : 0.0F;
  }
}

#else

// For the linker: no product takes pairs here.
void key_features(const FeatureRows&, PairedFactor&, float*) {}
void query_features(const FeatureRows&, const float*, c10::BFloat16*, float*) {}
void query_gradients(const FeatureRows&, const FeatureSlopes&, PairedFactor&, float*) {}
void key_gradients(const FeatureRows&, const FeatureSlopes&, c10::BFloat16*) {}
void quotient_gradients(const c10::BFloat16*, int64_t, const c10::BFloat16*, int64_t, int64_t, int64_t, const float*,
                        const bool*, c10::BFloat16*, float*) {}

#endif

}  // namespace xformer::kernels::by_512
