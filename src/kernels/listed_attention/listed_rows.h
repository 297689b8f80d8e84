// One row of attention over listed keys on the CPU: its query against the keys and values that its list names.
#pragma once

#include <cstdint>

#include "kernels/attention/weight_rows.h"

namespace xformer::kernels {

// Scores of a row have room to a multiple of so many.
inline constexpr int64_t kListedLanes = 16;

// Rows of `width` numbers, `stride` apart.
template <class Value>
struct ListedTable {
  Value* data;
  int64_t stride, width;

  [[nodiscard]] Value* row(int64_t place) const { return data + place * stride; }
};

template <class Value>
struct ListedRow {
  const Value* query;
  ListedTable<const Value> keys, values;
  const int64_t* places;  // [count]; -1: no key
  int64_t count;
  const Value* bias;  // [count], of the logits; nullptr: none
  Value scale;
  // Dropout's, as RowWeights has them, for room() numbers.
  const uint16_t* draws;
  uint32_t threshold;
  Value keep;

  [[nodiscard]] int64_t room() const { return (count + kListedLanes - 1) / kListedLanes * kListedLanes; }
  [[nodiscard]] RowWeights<Value> weights(Value shift) const { return natural_weights(shift, draws, threshold, keep); }
};

// What a row's gradients are made of, and where they go: q [d] and `bias` [count] (nullptr: not wanted) are the row's
// own, tables of k and v are added to.
template <class Value>
struct ListedGradients {
  const Value *out, *slope;  // [e]: what the row became, and the gradient of that
  Value* q;
  ListedTable<Value> k, v;
  Value* bias;
};

// out [e] of the row; returns the logarithm of the sum of its weights, infinity without a key. `scores` has room().
float listed_row(const ListedRow<float>& row, float* scores, float* out);
double listed_row(const ListedRow<double>& row, double* scores, double* out);
// From that logarithm, which is finite. `scores` and `slopes` have room().
void listed_row_gradients(const ListedRow<float>& row, float log_sum, const ListedGradients<float>& gradients,
                          float* scores, float* slopes);
void listed_row_gradients(const ListedRow<double>& row, double log_sum, const ListedGradients<double>& gradients,
                          double* scores, double* slopes);

// What a row x [width] has to do with the rows of a table that `places` [count] name, which are `stride` apart.

// products[l] = factor x . table[places[l]] for places of at least 0, and `none` for the others and for those from
// count up to the next multiple of kListedLanes. The table has a row, at least.
void listed_products(const float* x, const float* table, int64_t stride, const int64_t* places, int64_t count,
                     int64_t width, float factor, float none, float* products);
void listed_products(const double* x, const double* table, int64_t stride, const int64_t* places, int64_t count,
                     int64_t width, double factor, double none, double* products);
// x += factor sum over l of weights[l] table[places[l]]
void add_listed(float* x, const float* table, int64_t stride, const int64_t* places, int64_t count, int64_t width,
                float factor, const float* weights);
void add_listed(double* x, const double* table, int64_t stride, const int64_t* places, int64_t count, int64_t width,
                double factor, const double* weights);
// table[places[l]] += factor weights[l] x
void add_to_listed(const float* x, float* table, int64_t stride, const int64_t* places, int64_t count, int64_t width,
                   float factor, const float* weights);
void add_to_listed(const double* x, double* table, int64_t stride, const int64_t* places, int64_t count, int64_t width,
                   double factor, const double* weights);

namespace by_512 {

// The same where has_512() (kernels/cpu/lanes_512.h) and widths are multiples of kListedLanes.
float listed_row(const ListedRow<float>& row, float* scores, float* out);
void listed_row_gradients(const ListedRow<float>& row, float log_sum, const ListedGradients<float>& gradients,
                          float* scores, float* slopes);

}  // namespace by_512

}  // namespace xformer::kernels
