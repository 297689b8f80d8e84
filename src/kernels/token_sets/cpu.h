// The CPU's passes over sets of tokens (token_sets.h), for float, double and bf16, and their loops over the rows of one
// set, which lie `stride` elements apart.
#pragma once

#include <vector>

#include "kernels/token_sets/token_sets.h"

namespace xformer::kernels {

[[nodiscard]] at::Tensor set_max_forward_cpu(const at::Tensor& x, const TokenSets& sets);
[[nodiscard]] at::Tensor set_max_backward_cpu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& out,
                                              const TokenSets& sets);

struct SetAttentionForward {
  at::Tensor out;      // [b,h,t,e]
  at::Tensor log_sum;  // [b,h,t], float where q is bf16; infinity for sets without a valid token
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

// The rows of one set; `valid` says which count, nullptr: all.
template <class Value>
struct SetRows {
  const Value* rows;
  int64_t stride, count;
  const bool* valid;
};

// largest[c] = the largest row[c], 0 of no row; a NaN is larger than all.
void largest_of_set(const SetRows<float>& of, int64_t width, float* largest);
void largest_of_set(const SetRows<double>& of, int64_t width, double* largest);
// out row [c] = left[c] in the first row that has largest[c] or is NaN, where nothing is left then; 0 in the others.
void slopes_of_set(const SetRows<float>& of, int64_t width, const float* largest, float* left, float* out,
                   int64_t out_stride);
void slopes_of_set(const SetRows<double>& of, int64_t width, const double* largest, double* left, double* out,
                   int64_t out_stride);

// Those of float by each instruction set that there are two of them for, the widest first, which is what the ones above
// take.
struct LargestLoops {
  void (*largest)(const SetRows<float>& of, int64_t width, float* largest);
  void (*slopes)(const SetRows<float>& of, int64_t width, const float* largest, float* left, float* out,
                 int64_t out_stride);
};
[[nodiscard]] std::vector<LargestLoops> ways_to_find_largest();
// By AVX-512, where kernels/cpu/lanes_512.h says that the processor has it.
namespace by_512 {
void largest_of_set(const SetRows<float>& of, int64_t width, float* largest);
void slopes_of_set(const SetRows<float>& of, int64_t width, const float* largest, float* left, float* out,
                   int64_t out_stride);
}  // namespace by_512

// out[i] = factor row_i . x, for `count` rows.
void products_with(const float* rows, int64_t stride, int64_t count, const float* x, int64_t width, float factor,
                   float* out);
void products_with(const double* rows, int64_t stride, int64_t count, const double* x, int64_t width, double factor,
                   double* out);
void products_with(const c10::BFloat16* rows, int64_t stride, int64_t count, const float* x, int64_t width,
                   float factor, float* out);
// out = factor times the sum over i of weights[i] row_i. What a row holds whose weight is 0 plays no part.
void weighted_sum(const float* rows, int64_t stride, int64_t count, const float* weights, int64_t width, float factor,
                  float* out);
void weighted_sum(const double* rows, int64_t stride, int64_t count, const double* weights, int64_t width,
                  double factor, double* out);
void weighted_sum(const c10::BFloat16* rows, int64_t stride, int64_t count, const float* weights, int64_t width,
                  float factor, float* out);
// row_i = factor weights[i] x.
void spread(const float* x, int64_t width, const float* weights, int64_t count, float factor, float* rows,
            int64_t stride);
void spread(const double* x, int64_t width, const double* weights, int64_t count, double factor, double* rows,
            int64_t stride);
void spread(const float* x, int64_t width, const float* weights, int64_t count, float factor, c10::BFloat16* rows,
            int64_t stride);

}  // namespace xformer::kernels
