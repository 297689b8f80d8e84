// The CPU's passes over sets of tokens (token_sets.h), for float and double, and their loops over the rows of one set,
// which lie `stride` elements apart.
#pragma once

#include "kernels/token_sets/token_sets.h"

namespace xformer::kernels {

[[nodiscard]] at::Tensor set_max_forward_cpu(const at::Tensor& x, const TokenSets& sets);
[[nodiscard]] at::Tensor set_max_backward_cpu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& out,
                                              const TokenSets& sets);

struct SetAttentionForward {
  at::Tensor out;      // [b,h,t,e]
  at::Tensor log_sum;  // [b,h,t]; infinity for sets without a valid token
};
[[nodiscard]] SetAttentionForward set_attention_forward_cpu(const at::Tensor& q, const at::Tensor& k,
                                                            const at::Tensor& v, const SetAttentionOptions& options);

struct SetAttentionGradients {
  at::Tensor q, k, v;  // memory of k and v [b,n,h,d]
};
[[nodiscard]] SetAttentionGradients set_attention_backward_cpu(const at::Tensor& gradient, const at::Tensor& q,
                                                               const at::Tensor& k, const at::Tensor& v,
                                                               const SetAttentionForward& forward,
                                                               const SetAttentionOptions& options);

// largest[c] = the larger of it and row[c]; a NaN is larger than all, and stays.
void keep_largest(const float* row, int64_t width, float* largest);
void keep_largest(const double* row, int64_t width, double* largest);
// Where row[c] is largest[c] or NaN it takes what is left of the slopes, out = slopes, which become 0; out = 0
// elsewhere.
void take_slope(const float* row, const float* largest, int64_t width, float* slopes, float* out);
void take_slope(const double* row, const double* largest, int64_t width, double* slopes, double* out);

// out[i] = factor row_i . x, for `count` rows.
void products_with(const float* rows, int64_t stride, int64_t count, const float* x, int64_t width, float factor,
                   float* out);
void products_with(const double* rows, int64_t stride, int64_t count, const double* x, int64_t width, double factor,
                   double* out);
// out = factor times the sum over i of weights[i] row_i. What a row holds whose weight is 0 plays no part.
void weighted_sum(const float* rows, int64_t stride, int64_t count, const float* weights, int64_t width, float factor,
                  float* out);
void weighted_sum(const double* rows, int64_t stride, int64_t count, const double* weights, int64_t width,
                  double factor, double* out);
// row_i = factor weights[i] x.
void spread(const float* x, int64_t width, const float* weights, int64_t count, float factor, float* rows,
            int64_t stride);
void spread(const double* x, int64_t width, const double* weights, int64_t count, double factor, double* rows,
            int64_t stride);

}  // namespace xformer::kernels
