// Rows of attention weights on the CPU: what lies between the products.
#pragma once

#include <c10/util/BFloat16.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

// How a row of a tile's scores becomes weights: drop(2^(factor score - shift)), with exponents of at most 127.
template <class Value>
struct RowWeights {
  Value factor, shift;
  const uint16_t* draws;  // 16 bits an element, or nullptr without dropout: below `threshold` it is dropped
  uint32_t threshold;
  Value keep;  // what the others are multiplied by; 1 without dropout
};

// drop(e^(score - shift)).
template <class Value>
[[nodiscard]] RowWeights<Value> natural_weights(Value shift, const uint16_t* draws, uint32_t threshold, Value keep) {
  constexpr auto kFactor = static_cast<Value>(kLog2OfE);
  return {kFactor, kFactor * shift, draws, threshold, keep};
}

// Largest of `start` and the row's scores.
[[nodiscard]] float row_largest(const float* scores, int64_t count, float start);
[[nodiscard]] double row_largest(const double* scores, int64_t count, double start);
// Sum over i of x[i] y[i].
[[nodiscard]] float row_product(const float* x, const float* y, int64_t count);
[[nodiscard]] double row_product(const double* x, const double* y, int64_t count);
// The same of rows, `stride` numbers apart, to sums[row].
void row_products(int64_t rows, int64_t count, const float* x, int64_t x_stride, const float* y, int64_t y_stride,
                  float* sums);
void row_products(int64_t rows, int64_t count, const c10::BFloat16* x, int64_t x_stride, const c10::BFloat16* y,
                  int64_t y_stride, float* sums);
void row_products(int64_t rows, int64_t count, const double* x, int64_t x_stride, const double* y, int64_t y_stride,
                  double* sums);
// scores -> weights in `out`, which may be where the scores are; returns their sum before dropout. Where they are
// rounded, what happens to the scores is left open.
float row_weights(float* scores, int64_t count, const RowWeights<float>& weights, float* out);
float row_weights(float* scores, int64_t count, const RowWeights<float>& weights, c10::BFloat16* out);
double row_weights(double* scores, int64_t count, const RowWeights<double>& weights, double* out);
// scores -> weights; `gradient`, that of the weights -> slope p (drop(gradient) - delta), p the weights before dropout.
void row_gradients(float* scores, float* gradient, int64_t count, const RowWeights<float>& weights, float delta,
                   float slope = 1);
void row_gradients(double* scores, double* gradient, int64_t count, const RowWeights<double>& weights, double delta,
                   double slope = 1);

// Which scores of a row are those of keys that it sees: begin .. end - 1.
struct RowSpan {
  int64_t begin, end;
  // The whole vectors that hold them.
  [[nodiscard]] RowSpan steps() const {
    return begin >= end ? RowSpan{0, 0}
                        : RowSpan{begin / kSumLanes * kSumLanes, (end + kSumLanes - 1) / kSumLanes * kSumLanes};
  }
};

// Rows of a tile of scores on their way to weights, `stride` numbers apart in both. Of each row `largest` and `sum` are
// what came before this tile, -infinity and 0 ahead of the first, and then what came with it.
template <class Value>
struct WeightTile {
  int64_t rows, count, stride;
  Value *scores, factor;         // as above; positive
  const uint16_t* const* draws;  // of each row, as above
  uint32_t threshold;
  Value keep;
  Value *largest, *sum, *rescale;  // the last is what results of earlier tiles are to be multiplied by
  // Of each row, in lines of whole vectors; null: all. Weights beside a span are 0, whatever the scores; sums are as if
  // those in its vectors were -infinity.
  const RowSpan* spans = nullptr;
  [[nodiscard]] RowSpan steps(int64_t r) const { return spans == nullptr ? RowSpan{0, count} : spans[r].steps(); }
};
// What results of a row's earlier tiles are multiplied by, given its largest scores before and now.
template <class Value>
[[nodiscard]] Value rescaled(Value factor, Value before, Value now) {
  if (!(now > before)) return 1;
  return before == -std::numeric_limits<Value>::infinity() ? Value(0) : std::exp2(factor * (before - now));
}
// A row's shift is its largest score times the factor, or 0 without one.
void weigh_tile(const WeightTile<float>& tile, float* out);
void weigh_tile(const WeightTile<float>& tile, c10::BFloat16* out);
void weigh_tile(const WeightTile<double>& tile, double* out);

// Rows of a tile of scores and of the gradients of their weights, backwards: each as row_gradients() has it.
template <class Value>
struct SlopeTile {
  int64_t rows, count, stride;
  Value *scores, *gradient, factor;
  const uint16_t* const* draws;
  uint32_t threshold;
  Value keep;
  const Value *shift, *delta;  // of each row
  const RowSpan* spans;        // likewise; weights and gradients beside them are 0, whatever the scores
};
void slope_tile(const SlopeTile<float>& tile);
void slope_tile(const SlopeTile<double>& tile);

// log_sums[i] = shifts[i] + log sums[i], `none` where the sum is 0; any count.
void log_rows(const float* shifts, const float* sums, int64_t count, float none, float* log_sums);
void log_rows(const double* shifts, const double* sums, int64_t count, double none, double* log_sums);

// The loops of float by each instruction set that there are two of them for, the widest first, which is what the
// functions above take.
struct WeightLoops {
  float (*weights)(const float* scores, int64_t count, const RowWeights<float>& weights, float* out);
  void (*gradients)(float* scores, float* gradient, int64_t count, const RowWeights<float>& weights, float delta,
                    float slope);
};
[[nodiscard]] std::vector<WeightLoops> ways_to_weigh();

// A tile backwards, its rows as row_gradients() has them.
struct GradientTile {
  struct Row {
    const float *scores, *gradient;
    const uint16_t* draws;  // rows that count all draw, or none does
    float shift, delta;
    bool counts;  // or weights and gradients are 0, whatever is in the way
  };
  const Row* row;
  int64_t rows, count;
  float factor, keep, slope;
  uint32_t threshold;
  c10::BFloat16* to;  // gradients, a row behind the other
  int64_t to_stride;
};

// By AVX-512, where kernels/cpu/lanes_512.h says that the processor has it. Rounded numbers below 2^-126 are 0.
namespace by_512 {

float row_weights(const float* scores, int64_t count, const RowWeights<float>& weights, float* out);
float row_weights(const float* scores, int64_t count, const RowWeights<float>& weights, c10::BFloat16* out);
void weigh_tile(const WeightTile<float>& tile, float* out);
void weigh_tile(const WeightTile<float>& tile, c10::BFloat16* out);
void row_gradients(float* scores, float* gradient, int64_t count, const RowWeights<float>& weights, float delta,
                   float slope);
void slope_tile(const SlopeTile<float>& tile);
// Weights and gradients as second factors of products, gradients as first ones too.
void tile_gradients(const GradientTile& tile, PairedFactor& weights, PairedFactor& gradients);

}  // namespace by_512

}  // namespace xformer::kernels
