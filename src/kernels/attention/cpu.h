// The CPU's two passes of attention (attention.h), for float, double and bf16.
#pragma once

#include "kernels/attention/attention.h"

namespace xformer::kernels {

struct AttentionForward {
  at::Tensor out;  // [b,h,n,e], memory [b,n,h,e]
  at::Tensor
      log_sum;  // [b,h,n], float where q is bf16; +infinity for rows without a key and for queries that are not valid
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

// One row of a tile of weights, in place. `draws`: 16 bits an element, or nullptr without dropout; an element whose
// draw is below `threshold` is dropped, the others are multiplied by `keep`.

// Largest of `start` and the row's scores.
[[nodiscard]] float row_largest(const float* scores, int64_t count, float start);
[[nodiscard]] double row_largest(const double* scores, int64_t count, double start);
// Sum over i of x[i] y[i].
[[nodiscard]] float row_product(const float* x, const float* y, int64_t count);
[[nodiscard]] double row_product(const double* x, const double* y, int64_t count);
// scores -> drop(exp(factor score - shift)); returns the sum before dropout.
float row_weights(float* scores, int64_t count, float shift, const uint16_t* draws, uint32_t threshold, float keep,
                  float factor = 1);
double row_weights(double* scores, int64_t count, double shift, const uint16_t* draws, uint32_t threshold, double keep,
                   double factor = 1);
// scores -> drop(p) with p = exp(factor score - log_sum); `gradient`, that of drop(p) -> the score's, factor p
// (drop(gradient) - delta).
void row_gradients(float* scores, float* gradient, int64_t count, float log_sum, float delta, const uint16_t* draws,
                   uint32_t threshold, float keep, float factor = 1);
void row_gradients(double* scores, double* gradient, int64_t count, double log_sum, double delta, const uint16_t* draws,
                   uint32_t threshold, double keep, double factor = 1);

}  // namespace xformer::kernels
