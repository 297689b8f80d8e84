// The CPU's two passes of attention (attention.h), for float, double and bf16.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/cpu/vector_math.h"

namespace xformer::kernels {

struct AttentionForward {
  at::Tensor out;  // [b,h,n,e], memory [b,n,h,e]
  at::Tensor
      log_sum;  // [b,h,n], float where q is bf16; +infinity for rows without a key and for queries that are not valid
  at::Tensor kept;  // of a device: which weights dropout keeps, as its backward pass reads it; else undefined
};

[[nodiscard]] AttentionForward attention_forward_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                     const AttentionOptions& options);

struct AttentionGradients {
  at::Tensor q, k, v;  // memory [b,n,h,d]
};

[[nodiscard]] AttentionGradients attention_backward_cpu(const at::Tensor& gradient, const at::Tensor& q,
                                                        const at::Tensor& k, const at::Tensor& v,
                                                        const AttentionForward& forward,
                                                        const AttentionOptions& options);

// How a row of a tile's scores becomes weights: drop(2^(factor score - shift)), with exponents of at most 127.
template <class Value>
struct RowWeights {
  Value factor, shift;
  const uint16_t* draws;  // 16 bits an element, or nullptr without dropout: below `threshold` it is dropped
  uint32_t threshold;
  Value keep;  // what the others are multiplied by
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
// scores -> weights, in place; returns their sum before dropout.
float row_weights(float* scores, int64_t count, const RowWeights<float>& weights);
double row_weights(double* scores, int64_t count, const RowWeights<double>& weights);
// scores -> weights; `gradient`, that of the weights -> slope p (drop(gradient) - delta), p the weights before dropout.
void row_gradients(float* scores, float* gradient, int64_t count, const RowWeights<float>& weights, float delta,
                   float slope = 1);
void row_gradients(double* scores, double* gradient, int64_t count, const RowWeights<double>& weights, double delta,
                   double slope = 1);

}  // namespace xformer::kernels
