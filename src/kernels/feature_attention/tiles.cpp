#include "kernels/feature_attention/tiles.h"

#include "kernels/cpu/lanes_512.h"
#include "kernels/cpu/row_sums.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

namespace {

template <class Value>
[[gnu::always_inline]] inline int64_t place_of(Value largest, const Value* row, int64_t f) {
  constexpr int64_t kStep = 32;
  for (int64_t first = 0; first < f; first += kStep) {
    const int64_t end = first + kStep < f ? first + kStep : f;
    int reached = 0;
    for (int64_t i = first; i < end; ++i) reached += row[i] == largest;
    for (int64_t i = first; reached > 0 && i < end; ++i)
      if (row[i] == largest) return i;
  }
  return -1;
}

template <class Value>
[[gnu::always_inline]] inline void largest_numbers(const Value* tile, int64_t rows, int64_t f, Value* largest,
                                                   int64_t* winners) {
  for (int64_t r = 0; r < rows; ++r) {
    largest[r] = largest_of(tile + r * f, f, tile[r * f]);
    if (winners != nullptr) winners[r] = place_of(largest[r], tile + r * f, f);
  }
}

// y -> features. NaN stays NaN.
template <class Value>
[[gnu::always_inline]] inline void map_row(FeatureMap map, Value* row, int64_t f, const Value* shift, Value floor) {
  if (map == FeatureMap::kSoftmax) {
    const Value by = *shift;
    for (int64_t i = 0; i < f; ++i) row[i] = exp_below(row[i] - by) + floor;
  } else if (map == FeatureMap::kElu) {
    for (int64_t i = 0; i < f; ++i) row[i] = (row[i] > 0 ? row[i] + 1 : exp_of(row[i])) + floor;
  } else {
    for (int64_t i = 0; i < f; ++i) row[i] = (row[i] < 0 ? Value(0) : row[i]) + floor;
  }
}

// y -> features, and slope, that of the features but for times sums -> that of y.
template <class Value>
[[gnu::always_inline]] inline void map_row_gradient(FeatureMap map, Value* __restrict row, Value* __restrict slope,
                                                    int64_t f, const Value* shift, Value floor,
                                                    const Value* __restrict sums, Value times) {
  if (map == FeatureMap::kSoftmax) {
    const Value by = *shift;
    for (int64_t i = 0; i < f; ++i) {
      const Value peak = exp_below(row[i] - by);
      slope[i] = (slope[i] + times * sums[i]) * peak;
      row[i] = peak + floor;
    }
  } else if (map == FeatureMap::kElu) {
    for (int64_t i = 0; i < f; ++i) {
      const Value y = row[i], low = exp_of(y), whole = slope[i] + times * sums[i];
      slope[i] = y > 0 ? whole : whole * low;
      row[i] = (y > 0 ? y + 1 : low) + floor;
    }
  } else {
    for (int64_t i = 0; i < f; ++i) {
      const Value y = row[i], whole = slope[i] + times * sums[i];
      slope[i] = y > 0 ? whole : Value(0);
      row[i] = (y < 0 ? Value(0) : y) + floor;
    }
  }
}

template <class Value>
[[gnu::always_inline]] inline void clear(Value* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = 0;
}

template <class Value>
[[gnu::always_inline]] inline void add(Value* __restrict sums, const Value* __restrict x, int64_t count, Value times) {
  for (int64_t i = 0; i < count; ++i) sums[i] += times * x[i];
}

template <class Value>
[[gnu::always_inline]] inline void key_features(FeatureMap map, Value* tile, int64_t rows, int64_t f,
                                                const Value* shift, const bool* valid, Value floor, Value* sums) {
  for (int64_t r = 0; r < rows; ++r) {
    if (valid != nullptr && !valid[r]) {
      clear(tile + r * f, f);
      continue;
    }
    map_row(map, tile + r * f, f, shift + r, floor);
    add(sums, tile + r * f, f, Value(1));
  }
}

template <class Value>
[[gnu::always_inline]] inline void query_features(FeatureMap map, Value* tile, int64_t rows, int64_t f,
                                                  const Value* shift, Value floor, const Value* sums, Value* dots) {
  for (int64_t r = 0; r < rows; ++r) {
    map_row(map, tile + r * f, f, shift + r, floor);
    dots[r] = dot_of(tile + r * f, sums, f);
  }
}

template <class Value>
[[gnu::always_inline]] inline void feature_gradients(FeatureMap map, Value* tile, Value* gradient, int64_t rows,
                                                     int64_t f, const Value* shift, const bool* valid, Value floor,
                                                     const Value* sums, const Value* factor, Value* d_sums,
                                                     Value* row_sums) {
  for (int64_t r = 0; r < rows; ++r) {
    Value *const row = tile + r * f, *const slope = gradient + r * f;
    row_sums[r] = 0;
    if (valid != nullptr && !valid[r]) {
      clear(row, f);
      clear(slope, f);
      continue;
    }
    const Value times = factor == nullptr ? Value(1) : factor[r];
    map_row_gradient(map, row, slope, f, shift + r, floor, sums, times);
    if (d_sums != nullptr) add(d_sums, row, f, times);
    if (map == FeatureMap::kSoftmax) row_sums[r] = total_of(slope, f);
  }
}

template <class Value>
[[gnu::always_inline]] inline void quotient_gradients(const Value* gradient, int64_t gradient_stride, const Value* out,
                                                      int64_t out_stride, int64_t rows, int64_t width,
                                                      const Value* divisor, const bool* valid, Value* numerator,
                                                      Value* sum) {
  for (int64_t r = 0; r < rows; ++r) {
    Value* const into = numerator + r * width;
    clear(into, width);
    sum[r] = 0;
    if (valid != nullptr && !valid[r]) continue;
    add(into, gradient + r * gradient_stride, width, 1 / divisor[r]);
    sum[r] = -dot_of(into, out + r * out_stride, width);
  }
}

}  // namespace

namespace by_compiler {

XFORMER_VECTORISED
void largest_of_rows(const float* tile, int64_t rows, int64_t f, float* largest, int64_t* winners) {
  largest_numbers(tile, rows, f, largest, winners);
}

XFORMER_VECTORISED
void features_of_keys(FeatureMap map, float* tile, int64_t rows, int64_t f, const float* shift, const bool* valid,
                      float floor, float* sums) {
  key_features(map, tile, rows, f, shift, valid, floor, sums);
}

XFORMER_VECTORISED
void features_of_queries(FeatureMap map, float* tile, int64_t rows, int64_t f, const float* shift, float floor,
                         const float* sums, float* dots) {
  query_features(map, tile, rows, f, shift, floor, sums, dots);
}

XFORMER_VECTORISED
void gradients_of_features(FeatureMap map, float* tile, float* gradient, int64_t rows, int64_t f, const float* shift,
                           const bool* valid, float floor, const float* sums, const float* factor, float* d_sums,
                           float* row_sums) {
  feature_gradients(map, tile, gradient, rows, f, shift, valid, floor, sums, factor, d_sums, row_sums);
}

}  // namespace by_compiler

std::vector<FeatureLoops> ways_to_make_features() {
  std::vector<FeatureLoops> ways;
  if (has_512())
    ways.push_back({by_512::largest_of_rows, by_512::features_of_keys, by_512::features_of_queries,
                    by_512::gradients_of_features});
  ways.push_back({by_compiler::largest_of_rows, by_compiler::features_of_keys, by_compiler::features_of_queries,
                  by_compiler::gradients_of_features});
  return ways;
}

namespace {

const FeatureLoops& loops() {
  static const FeatureLoops widest = ways_to_make_features().front();
  return widest;
}

}  // namespace

void largest_of_rows(const float* tile, int64_t rows, int64_t f, float* largest, int64_t* winners) {
  loops().largest(tile, rows, f, largest, winners);
}
void largest_of_rows(const double* tile, int64_t rows, int64_t f, double* largest, int64_t* winners) {
  largest_numbers(tile, rows, f, largest, winners);
}

void features_of_keys(FeatureMap map, float* tile, int64_t rows, int64_t f, const float* shift, const bool* valid,
                      float floor, float* sums) {
  loops().keys(map, tile, rows, f, shift, valid, floor, sums);
}
void features_of_keys(FeatureMap map, double* tile, int64_t rows, int64_t f, const double* shift, const bool* valid,
                      double floor, double* sums) {
  key_features(map, tile, rows, f, shift, valid, floor, sums);
}

void features_of_queries(FeatureMap map, float* tile, int64_t rows, int64_t f, const float* shift, float floor,
                         const float* sums, float* dots) {
  loops().queries(map, tile, rows, f, shift, floor, sums, dots);
}
void features_of_queries(FeatureMap map, double* tile, int64_t rows, int64_t f, const double* shift, double floor,
                         const double* sums, double* dots) {
  query_features(map, tile, rows, f, shift, floor, sums, dots);
}

void gradients_of_features(FeatureMap map, float* tile, float* gradient, int64_t rows, int64_t f, const float* shift,
                           const bool* valid, float floor, const float* sums, const float* factor, float* d_sums,
                           float* row_sums) {
  loops().gradients(map, tile, gradient, rows, f, shift, valid, floor, sums, factor, d_sums, row_sums);
}
void gradients_of_features(FeatureMap map, double* tile, double* gradient, int64_t rows, int64_t f, const double* shift,
                           const bool* valid, double floor, const double* sums, const double* factor, double* d_sums,
                           double* row_sums) {
  feature_gradients(map, tile, gradient, rows, f, shift, valid, floor, sums, factor, d_sums, row_sums);
}

XFORMER_VECTORISED
void squares_of_rows(const float* x, int64_t stride, int64_t rows, int64_t width, float factor, float* out) {
  for (int64_t r = 0; r < rows; ++r) out[r] = factor * dot_of(x + r * stride, x + r * stride, width);
}
void squares_of_rows(const double* x, int64_t stride, int64_t rows, int64_t width, double factor, double* out) {
  for (int64_t r = 0; r < rows; ++r) out[r] = factor * dot_of(x + r * stride, x + r * stride, width);
}

XFORMER_VECTORISED
void add_rows(float* y, int64_t y_stride, const float* x, int64_t x_stride, int64_t rows, int64_t width,
              const float* factor, float scale) {
  for (int64_t r = 0; r < rows; ++r)
    if (factor[r] != 0) add(y + r * y_stride, x + r * x_stride, width, factor[r] * scale);
}
void add_rows(double* y, int64_t y_stride, const double* x, int64_t x_stride, int64_t rows, int64_t width,
              const double* factor, double scale) {
  for (int64_t r = 0; r < rows; ++r)
    if (factor[r] != 0) add(y + r * y_stride, x + r * x_stride, width, factor[r] * scale);
}

XFORMER_VECTORISED
void gradients_of_quotient(const float* gradient, int64_t gradient_stride, const float* out, int64_t out_stride,
                           int64_t rows, int64_t width, const float* divisor, const bool* valid, float* numerator,
                           float* sum) {
  quotient_gradients(gradient, gradient_stride, out, out_stride, rows, width, divisor, valid, numerator, sum);
}
void gradients_of_quotient(const double* gradient, int64_t gradient_stride, const double* out, int64_t out_stride,
                           int64_t rows, int64_t width, const double* divisor, const bool* valid, double* numerator,
                           double* sum) {
  quotient_gradients(gradient, gradient_stride, out, out_stride, rows, width, divisor, valid, numerator, sum);
}

}  // namespace xformer::kernels
