// Rows of attention weights on the CPU: what lies between the products.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/vector_math.h"

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

// The loops of float by each instruction set that there are two of them for, the widest first, which is what the
// functions above take.
struct WeightLoops {
  float (*weights)(const float* scores, int64_t count, const RowWeights<float>& weights, float* out);
  void (*gradients)(float* scores, float* gradient, int64_t count, const RowWeights<float>& weights, float delta,
                    float slope);
};
[[nodiscard]] std::vector<WeightLoops> ways_to_weigh();

// Rows 2 place and 2 place + 1 of a tile backwards, as row_gradients() has them.
struct GradientPair {
  struct One {
    RowWeights<float> weights;  // rows that count both draw, or neither does
    const float *scores, *gradient;
    float delta;
    bool counts;        // or weights and gradients are 0, whatever is in the way
    c10::BFloat16* to;  // gradients behind each other; nullptr: there is no such row, which does not count then
  } rows[2];
  int64_t place, count;
  float slope;
};

// By AVX-512, where kernels/cpu/lanes_512.h says that the processor has it. Rounded numbers below 2^-126 are 0.
namespace by_512 {

float row_weights(const float* scores, int64_t count, const RowWeights<float>& weights, float* out);
float row_weights(const float* scores, int64_t count, const RowWeights<float>& weights, c10::BFloat16* out);
void row_gradients(float* scores, float* gradient, int64_t count, const RowWeights<float>& weights, float delta,
                   float slope);
// Weights and gradients as second factors of products, gradients as first ones too.
void pair_gradients(const GradientPair& pair, PairedFactor& weights, PairedFactor& gradients);

}  // namespace by_512

}  // namespace xformer::kernels
