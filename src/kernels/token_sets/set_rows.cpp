// The loops over the rows of one set of tokens, in versions for each instruction set.
#include "kernels/cpu/vectorised.h"
#include "kernels/token_sets/cpu.h"

namespace xformer::kernels {

namespace {

// | in place of ||, which would keep a loop from being vectorised.
template <class Value>
[[gnu::always_inline]] inline void larger(const Value* row, int64_t width, Value* __restrict largest) {
  for (int64_t c = 0; c < width; ++c) {
    const Value x = row[c], y = largest[c];
    largest[c] = ((x > y) | (x != x)) ? x : y;
  }
}

template <class Value>
[[gnu::always_inline]] inline void take(const Value* row, const Value* largest, int64_t width, Value* __restrict slopes,
                                        Value* __restrict out) {
  for (int64_t c = 0; c < width; ++c) {
    const bool takes = (row[c] == largest[c]) | (row[c] != row[c]);
    const Value left = slopes[c];
    out[c] = takes ? left : Value(0);
    slopes[c] = takes ? Value(0) : left;
  }
}

template <class Value>
[[gnu::always_inline]] inline void products(const Value* rows, int64_t stride, int64_t count, const Value* x,
                                            int64_t width, Value factor, Value* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    const Value* const row = rows + i * stride;
    SumLanes<Value> sums = {}, a, b;
    int64_t c = 0;
    for (; c + kSumLanes <= width; c += kSumLanes) {
      load(row + c, a), load(x + c, b);
      sums += a * b;
    }
    Value sum = sum_of<kSumLanes, Value>(sums);
    for (; c < width; ++c) sum += row[c] * x[c];
    out[i] = factor * sum;
  }
}

// A block of channels after the other, so that its sum stays in a register.
template <class Value>
[[gnu::always_inline]] inline void sum_rows(const Value* rows, int64_t stride, int64_t count, const Value* weights,
                                            int64_t width, Value factor, Value* __restrict out) {
  int64_t c = 0;
  for (; c + kSumLanes <= width; c += kSumLanes) {
    SumLanes<Value> sums = {}, row;
    for (int64_t i = 0; i < count; ++i) {
      if (weights[i] == 0) continue;
      load(rows + i * stride + c, row);
      sums += weights[i] * row;
    }
    sums *= factor;
    store(sums, out + c);
  }
  for (; c < width; ++c) {
    Value sum = 0;
    for (int64_t i = 0; i < count; ++i)
      if (weights[i] != 0) sum += weights[i] * rows[i * stride + c];
    out[c] = factor * sum;
  }
}

template <class Value>
[[gnu::always_inline]] inline void outer(const Value* x, int64_t width, const Value* weights, int64_t count,
                                         Value factor, Value* __restrict rows, int64_t stride) {
  for (int64_t i = 0; i < count; ++i) {
    const Value weight = factor * weights[i];
    for (int64_t c = 0; c < width; ++c) rows[i * stride + c] = weight * x[c];
  }
}

}  // namespace

XFORMER_VECTORISED
void keep_largest(const float* row, int64_t width, float* largest) { larger(row, width, largest); }
void keep_largest(const double* row, int64_t width, double* largest) { larger(row, width, largest); }

XFORMER_VECTORISED
void take_slope(const float* row, const float* largest, int64_t width, float* slopes, float* out) {
  take(row, largest, width, slopes, out);
}
void take_slope(const double* row, const double* largest, int64_t width, double* slopes, double* out) {
  take(row, largest, width, slopes, out);
}

XFORMER_VECTORISED
void products_with(const float* rows, int64_t stride, int64_t count, const float* x, int64_t width, float factor,
                   float* out) {
  products(rows, stride, count, x, width, factor, out);
}
void products_with(const double* rows, int64_t stride, int64_t count, const double* x, int64_t width, double factor,
                   double* out) {
  products(rows, stride, count, x, width, factor, out);
}

XFORMER_VECTORISED
void weighted_sum(const float* rows, int64_t stride, int64_t count, const float* weights, int64_t width, float factor,
                  float* out) {
  sum_rows(rows, stride, count, weights, width, factor, out);
}
void weighted_sum(const double* rows, int64_t stride, int64_t count, const double* weights, int64_t width,
                  double factor, double* out) {
  sum_rows(rows, stride, count, weights, width, factor, out);
}

XFORMER_VECTORISED
void spread(const float* x, int64_t width, const float* weights, int64_t count, float factor, float* rows,
            int64_t stride) {
  outer(x, width, weights, count, factor, rows, stride);
}
void spread(const double* x, int64_t width, const double* weights, int64_t count, double factor, double* rows,
            int64_t stride) {
  outer(x, width, weights, count, factor, rows, stride);
}

}  // namespace xformer::kernels
