// The loops of attention over listed keys: one row with rows of a table, a vector of channels at a time.
#include "kernels/listed_attention/listed_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/lanes_512.h"
#include "kernels/cpu/row_sums.h"

namespace xformer::kernels {

namespace {

template <int64_t kRegister, class Value>
[[gnu::always_inline]] inline void products_of(const Value* x, const Value* table, int64_t stride,
                                               const int64_t* places, int64_t count, int64_t width, Value factor,
                                               Value none, Value* products) {
  for (int64_t first = 0; first < count; first += kSumLanes) {
    const Value* rows[kSumLanes];  // a key that is not there is read as the first row, and not used
    Value there[kSumLanes];
    for (int64_t l = 0; l < kSumLanes; ++l) {
      const int64_t place = first + l < count ? places[first + l] : -1;
      rows[l] = table + (place < 0 ? 0 : place) * stride;
      there[l] = place < 0 ? Value(0) : Value(1);
    }
    Value dots[kSumLanes];
    dots_of<kRegister>(x, rows, width, dots);
    for (int64_t l = 0; l < kSumLanes; ++l) products[first + l] = there[l] > 0 ? factor * dots[l] : none;
  }
}

// Of kVectors vectors of channels, whose sums stay in registers.
template <int64_t kVectors, int64_t kRegister, class Value>
[[gnu::always_inline]] inline void add_channels_of(Value* __restrict x, const Value* __restrict table, int64_t stride,
                                                   const int64_t* places, int64_t count, Value factor,
                                                   const Value* weights) {
  SumRegisters<Value, kRegister> sums[kVectors], part;
  for (int64_t i = 0; i < kVectors; ++i) sums[i].load_from(x + i * kSumLanes);
  for (int64_t l = 0; l < count; ++l) {
    if (places[l] < 0) continue;
    const Value* const row = table + places[l] * stride;
    const Value weight = factor * weights[l];
    for (int64_t i = 0; i < kVectors; ++i) {
      part.load_from(row + i * kSumLanes);
      sums[i] += part * weight;
    }
  }
  for (int64_t i = 0; i < kVectors; ++i) sums[i].store_to(x + i * kSumLanes);
}

template <int64_t kRegister, class Value>
[[gnu::always_inline]] inline void add_rows_of(Value* __restrict x, const Value* __restrict table, int64_t stride,
                                               const int64_t* places, int64_t count, int64_t width, Value factor,
                                               const Value* weights) {
  int64_t first = 0;
  for (; first + 2 * kSumLanes <= width; first += 2 * kSumLanes)
    add_channels_of<2, kRegister>(x + first, table + first, stride, places, count, factor, weights);
  for (; first + kSumLanes <= width; first += kSumLanes)
    add_channels_of<1, kRegister>(x + first, table + first, stride, places, count, factor, weights);
  if (first == width) return;
  for (int64_t l = 0; l < count; ++l) {
    if (places[l] < 0) continue;
    const Value* const row = table + places[l] * stride;
    const Value weight = factor * weights[l];
    for (int64_t c = first; c < width; ++c) x[c] += weight * row[c];
  }
}

template <int64_t kRegister, class Value>
[[gnu::always_inline]] inline void add_to_rows_of(const Value* __restrict x, Value* __restrict table, int64_t stride,
                                                  const int64_t* places, int64_t count, int64_t width, Value factor,
                                                  const Value* weights) {
  for (int64_t l = 0; l < count; ++l) {
    if (places[l] < 0) continue;
    Value* const row = table + places[l] * stride;
    const Value weight = factor * weights[l];
    SumRegisters<Value, kRegister> own, sum;
    int64_t c = 0;
    for (; c + kSumLanes <= width; c += kSumLanes) {
      own.load_from(x + c);
      sum.load_from(row + c);
      sum += own * weight;
      sum.store_to(row + c);
    }
    for (; c < width; ++c) row[c] += weight * x[c];
  }
}

}  // namespace

XFORMER_VECTORISED_BY_REGISTER(void, listed_products,
                               (const float* x, const float* table, int64_t stride, const int64_t* places,
                                int64_t count, int64_t width, float factor, float none, float* products),
                               (x, table, stride, places, count, width, factor, none, products),
                               products_of<kRegister>(x, table, stride, places, count, width, factor, none, products))
void listed_products(const double* x, const double* table, int64_t stride, const int64_t* places, int64_t count,
                     int64_t width, double factor, double none, double* products) {
  products_of<kPlainRegister>(x, table, stride, places, count, width, factor, none, products);
}

XFORMER_VECTORISED_BY_REGISTER(void, add_listed,
                               (float* x, const float* table, int64_t stride, const int64_t* places, int64_t count,
                                int64_t width, float factor, const float* weights),
                               (x, table, stride, places, count, width, factor, weights),
                               add_rows_of<kRegister>(x, table, stride, places, count, width, factor, weights))
void add_listed(double* x, const double* table, int64_t stride, const int64_t* places, int64_t count, int64_t width,
                double factor, const double* weights) {
  add_rows_of<kPlainRegister>(x, table, stride, places, count, width, factor, weights);
}

XFORMER_VECTORISED_BY_REGISTER(void, add_to_listed,
                               (const float* x, float* table, int64_t stride, const int64_t* places, int64_t count,
                                int64_t width, float factor, const float* weights),
                               (x, table, stride, places, count, width, factor, weights),
                               add_to_rows_of<kRegister>(x, table, stride, places, count, width, factor, weights))
void add_to_listed(const double* x, double* table, int64_t stride, const int64_t* places, int64_t count, int64_t width,
                   double factor, const double* weights) {
  add_to_rows_of<kPlainRegister>(x, table, stride, places, count, width, factor, weights);
}

namespace {

// Whether rows go by by_512's loops.
bool takes_512(const ListedRow<float>& row) {
  return has_512() && row.keys.width % kListedLanes == 0 && row.values.width % kListedLanes == 0;
}

template <class Value>
void logits_of(const ListedRow<Value>& row, Value* scores) {
  listed_products(row.query, row.keys.data, row.keys.stride, row.places, row.count, row.keys.width, row.scale,
                  -std::numeric_limits<Value>::infinity(), scores);
  if (row.bias != nullptr)
    for (int64_t l = 0; l < row.count; ++l) scores[l] += row.bias[l];
}

template <class Value>
Value row_of(const ListedRow<Value>& row, Value* scores, Value* out) {
  constexpr Value kInfinite = std::numeric_limits<Value>::infinity();
  // First of all, so that it has come from memory when it is added to.
  std::fill_n(out, row.values.width, Value(0));
  logits_of(row, scores);
  const Value largest = row_largest(scores, row.room(), -kInfinite);
  if (largest == -kInfinite) return kInfinite;
  const Value sum = row_weights(scores, row.room(), row.weights(largest), scores);
  add_listed(out, row.values.data, row.values.stride, row.places, row.count, row.values.width, 1 / sum, scores);
  return largest + std::log(sum);
}

template <class Value>
void gradients_of(const ListedRow<Value>& row, Value log_sum, const ListedGradients<Value>& given, Value* scores,
                  Value* slopes) {
  std::fill_n(given.q, row.keys.width, Value(0));  // first, likewise
  logits_of(row, scores);
  listed_products(given.slope, row.values.data, row.values.stride, row.places, row.count, row.values.width, Value(1),
                  Value(0), slopes);
  // What softmax's gradient takes off: the row's sum of out * gradient.
  const Value delta = row_product(given.out, given.slope, row.values.width);
  row_gradients(scores, slopes, row.room(), row.weights(log_sum), delta);
  if (given.bias != nullptr) std::copy_n(slopes, row.count, given.bias);
  add_listed(given.q, row.keys.data, row.keys.stride, row.places, row.count, row.keys.width, row.scale, slopes);
  add_to_listed(row.query, given.k.data, given.k.stride, row.places, row.count, row.keys.width, row.scale, slopes);
  add_to_listed(given.slope, given.v.data, given.v.stride, row.places, row.count, row.values.width, Value(1), scores);
}

}  // namespace

float listed_row(const ListedRow<float>& row, float* scores, float* out) {
  return takes_512(row) ? by_512::listed_row(row, scores, out) : row_of(row, scores, out);
}
double listed_row(const ListedRow<double>& row, double* scores, double* out) { return row_of(row, scores, out); }

void listed_row_gradients(const ListedRow<float>& row, float log_sum, const ListedGradients<float>& gradients,
                          float* scores, float* slopes) {
  if (takes_512(row)) by_512::listed_row_gradients(row, log_sum, gradients, scores, slopes);
  else gradients_of(row, log_sum, gradients, scores, slopes);
}
void listed_row_gradients(const ListedRow<double>& row, double log_sum, const ListedGradients<double>& gradients,
                          double* scores, double* slopes) {
  gradients_of(row, log_sum, gradients, scores, slopes);
}

}  // namespace xformer::kernels
