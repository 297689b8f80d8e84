// The loops of attention over listed keys: one row with rows of a table, a vector of channels at a time.
#include "kernels/cpu/row_sums.h"
#include "kernels/listed_attention/cpu.h"

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

}  // namespace xformer::kernels
