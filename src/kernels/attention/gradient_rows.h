// Rows of a tile of attention's weights backwards: one by one in float, or two by two as products of bf16 take them.
#pragma once

#include <algorithm>

#include "kernels/attention/weight_rows.h"
#include "kernels/cpu/stored.h"

namespace xformer::kernels {

template <class Value>
struct GradientRow {
  Value *scores, *slope;  // the latter is the gradient of the weights, and becomes that of the scores
  RowWeights<Value> weights;
  Value delta;
  bool counts;  // or it has no weights, whatever lies there
};

template <class Value>
void weigh(const GradientRow<Value>& row, int64_t count, Value slope) {
  if (row.counts) return row_gradients(row.scores, row.slope, count, row.weights, row.delta, slope);
  std::fill_n(row.scores, count, Value(0));
  std::fill_n(row.slope, count, Value(0));
}

// A tile's weights and gradients as second factors, and the latter as a first one.
struct PairedTile {
  PairedFactor weights, slopes;
  std::vector<c10::BFloat16> rows;
  std::vector<GradientTile::Row> given;
};

// row_at(r) is row r; scales and dropout are those of all. Where pairs_possible(). Returns where the gradients' rows
// are, `stride` numbers apart.
template <class RowAt>
c10::BFloat16* weigh_pairs(int64_t rows, int64_t count, int64_t stride, float slope, const RowAt& row_at,
                           PairedTile& tile) {
  tile.weights.reset(rows, count);
  tile.slopes.reset(rows, count);
  GradientTile::Row* const given = grown(tile.given, rows);
  RowWeights<float> all{1, 0, nullptr, 0, 1};
  for (int64_t r = 0; r < rows; ++r) {
    const GradientRow<float> row = row_at(r);
    if (row.counts) all = row.weights;
    given[r] = {row.scores, row.slope, row.weights.draws, row.weights.shift, row.delta, row.counts};
  }
  c10::BFloat16* const to = grown(tile.rows, rows * stride);
  by_512::tile_gradients({given, rows, count, all.factor, all.keep, slope, all.threshold, to, stride}, tile.weights,
                         tile.slopes);
  return to;
}

}  // namespace xformer::kernels
