// The loops of attention over listed keys: one row with rows of a table, a vector of channels at a time.
#include <utility>

#include "kernels/cpu/vectorised.h"
#include "kernels/listed_attention/cpu.h"

namespace xformer::kernels {

namespace {

// Keys whose products are summed side by side.
constexpr int64_t kKeys = kSumLanes;

// Of two vectors of sums in groups of `group` lanes, each group a sum in the making, one vector of all their groups,
// half as wide: those of `a`, then those of `b`.
template <int64_t group, class Value, int... k>
[[gnu::always_inline]] inline void fold(const SumLanes<Value>& a, const SumLanes<Value>& b, SumLanes<Value>& into,
                                        std::integer_sequence<int, k...>) {
  constexpr int kHalf = group / 2;
  into = __builtin_shufflevector(a, b, (k / kHalf * static_cast<int>(group) + k % kHalf)...) +
         __builtin_shufflevector(a, b, (k / kHalf * static_cast<int>(group) + k % kHalf + kHalf)...);
}

// sums[0] = the sums of the lanes of sums[0] .. sums[group - 1], one behind the other.
template <int64_t group, class Value>
[[gnu::always_inline]] inline void fold_all(SumLanes<Value>* sums) {
  if constexpr (group > 1) {
    for (int64_t i = 0; i < group / 2; ++i)
      fold<group, Value>(sums[2 * i], sums[2 * i + 1], sums[i], std::make_integer_sequence<int, kSumLanes>());
    fold_all<group / 2, Value>(sums);
  }
}

template <class Value>
[[gnu::always_inline]] inline void products_of(const Value* x, const Value* table, int64_t stride,
                                               const int64_t* places, int64_t count, int64_t width, Value factor,
                                               Value none, Value* products) {
  for (int64_t first = 0; first < count; first += kKeys) {
    const Value* rows[kKeys];  // a key that is not there is read as the first row, and not used
    Value there[kKeys];
    for (int64_t l = 0; l < kKeys; ++l) {
      const int64_t place = first + l < count ? places[first + l] : -1;
      rows[l] = table + (place < 0 ? 0 : place) * stride;
      there[l] = place < 0 ? Value(0) : Value(1);
    }
    SumLanes<Value> sums[kKeys] = {}, a, b;
    int64_t c = 0;
    for (; c + kSumLanes <= width; c += kSumLanes) {
      load(x + c, a);
      for (int64_t l = 0; l < kKeys; ++l) {
        load(rows[l] + c, b);
        sums[l] += a * b;
      }
    }
    fold_all<kSumLanes, Value>(sums);
    for (; c < width; ++c)
      for (int64_t l = 0; l < kKeys; ++l) sums[0][l] += x[c] * rows[l][c];
    for (int64_t l = 0; l < kKeys; ++l) products[first + l] = there[l] > 0 ? factor * sums[0][l] : none;
  }
}

// Of kVectors vectors of channels, whose sums stay in registers.
template <int64_t kVectors, class Value>
[[gnu::always_inline]] inline void add_channels_of(Value* __restrict x, const Value* __restrict table, int64_t stride,
                                                   const int64_t* places, int64_t count, Value factor,
                                                   const Value* weights) {
  SumLanes<Value> sums[kVectors], part;
  for (int64_t i = 0; i < kVectors; ++i) load(x + i * kSumLanes, sums[i]);
  for (int64_t l = 0; l < count; ++l) {
    if (places[l] < 0) continue;
    const Value* const row = table + places[l] * stride;
    const Value weight = factor * weights[l];
    for (int64_t i = 0; i < kVectors; ++i) {
      load(row + i * kSumLanes, part);
      sums[i] += weight * part;
    }
  }
  for (int64_t i = 0; i < kVectors; ++i) store(sums[i], x + i * kSumLanes);
}

template <class Value>
[[gnu::always_inline]] inline void add_rows_of(Value* __restrict x, const Value* __restrict table, int64_t stride,
                                               const int64_t* places, int64_t count, int64_t width, Value factor,
                                               const Value* weights) {
  int64_t first = 0;
  for (; first + 2 * kSumLanes <= width; first += 2 * kSumLanes)
    add_channels_of<2>(x + first, table + first, stride, places, count, factor, weights);
  for (; first + kSumLanes <= width; first += kSumLanes)
    add_channels_of<1>(x + first, table + first, stride, places, count, factor, weights);
  if (first == width) return;
  for (int64_t l = 0; l < count; ++l) {
    if (places[l] < 0) continue;
    const Value* const row = table + places[l] * stride;
    const Value weight = factor * weights[l];
    for (int64_t c = first; c < width; ++c) x[c] += weight * row[c];
  }
}

template <class Value>
[[gnu::always_inline]] inline void add_to_rows_of(const Value* __restrict x, Value* __restrict table, int64_t stride,
                                                  const int64_t* places, int64_t count, int64_t width, Value factor,
                                                  const Value* weights) {
  for (int64_t l = 0; l < count; ++l) {
    if (places[l] < 0) continue;
    Value* const row = table + places[l] * stride;
    const Value weight = factor * weights[l];
    SumLanes<Value> own, sum;
    int64_t c = 0;
    for (; c + kSumLanes <= width; c += kSumLanes) {
      load(x + c, own);
      load(row + c, sum);
      sum += weight * own;
      store(sum, row + c);
    }
    for (; c < width; ++c) row[c] += weight * x[c];
  }
}

}  // namespace

XFORMER_VECTORISED
void listed_products(const float* x, const float* table, int64_t stride, const int64_t* places, int64_t count,
                     int64_t width, float factor, float none, float* products) {
  products_of(x, table, stride, places, count, width, factor, none, products);
}
void listed_products(const double* x, const double* table, int64_t stride, const int64_t* places, int64_t count,
                     int64_t width, double factor, double none, double* products) {
  products_of(x, table, stride, places, count, width, factor, none, products);
}

XFORMER_VECTORISED
void add_listed(float* x, const float* table, int64_t stride, const int64_t* places, int64_t count, int64_t width,
                float factor, const float* weights) {
  add_rows_of(x, table, stride, places, count, width, factor, weights);
}
void add_listed(double* x, const double* table, int64_t stride, const int64_t* places, int64_t count, int64_t width,
                double factor, const double* weights) {
  add_rows_of(x, table, stride, places, count, width, factor, weights);
}

XFORMER_VECTORISED
void add_to_listed(const float* x, float* table, int64_t stride, const int64_t* places, int64_t count, int64_t width,
                   float factor, const float* weights) {
  add_to_rows_of(x, table, stride, places, count, width, factor, weights);
}
void add_to_listed(const double* x, double* table, int64_t stride, const int64_t* places, int64_t count, int64_t width,
                   double factor, const double* weights) {
  add_to_rows_of(x, table, stride, places, count, width, factor, weights);
}

}  // namespace xformer::kernels
