// The CPU's passes over sets of tokens (token_sets.h), for float, double and bf16, and their loops over the rows of one
// set, which lie `stride` elements apart.
#pragma once

#include <vector>

#include "kernels/token_sets/token_sets.h"

namespace xformer::kernels {

[[nodiscard]] at::Tensor set_max_forward_cpu(const at::Tensor& x, const TokenSets& sets);
[[nodiscard]] at::Tensor set_max_backward_cpu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& out,
                                              const TokenSets& sets);

struct NestedSetsForward {
  // Of each size: [b,h,t,e]; [b,h,t], float where q is bf16, infinity for sets without a valid token.
  std::vector<at::Tensor> outs, log_sums;
};
[[nodiscard]] NestedSetsForward nested_sets_forward_cpu(const std::vector<at::Tensor>& q, const at::Tensor& k,
                                                        const at::Tensor& v, const NestedSetsOptions& options);

struct NestedSetsGradients {
  std::vector<at::Tensor> q;
  at::Tensor k, v;  // memory [b,n,h,d]
};
[[nodiscard]] NestedSetsGradients nested_sets_backward_cpu(const std::vector<at::Tensor>& gradients,
                                                           const std::vector<at::Tensor>& q, const at::Tensor& k,
                                                           const at::Tensor& v, const NestedSetsForward& forward,
                                                           const NestedSetsOptions& options);

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

// Sets of `size` tokens each, behind each other: token i is of set i / size, and the last set may have fewer.
struct SetRun {
  int64_t size, tokens;
  [[nodiscard]] int64_t sets() const { return (tokens + size - 1) / size; }
  [[nodiscard]] int64_t line() const { return sets() * size; }  // numbers of tokens, with those that are not there
};
// Sets of fewer tokens go by some at once, with no more than so many tokens.
inline constexpr int64_t kRunTokens = 64;

// out[i] = factor row_i . x of its set.
void products_with(const float* rows, int64_t stride, const SetRun& run, const float* x, int64_t x_stride,
                   int64_t width, float factor, float* out);
void products_with(const double* rows, int64_t stride, const SetRun& run, const double* x, int64_t x_stride,
                   int64_t width, double factor, double* out);
void products_with(const c10::BFloat16* rows, int64_t stride, const SetRun& run, const float* x, int64_t x_stride,
                   int64_t width, float factor, float* out);
// Scores [line] -> weights before division; of each set what its exponents are shifted by and the sum of its weights
// before dropout, 0 and 0 of none. Draws, where not null, are as RowWeights has them.
void weigh_sets(const SetRun& run, const uint16_t* draws, uint32_t threshold, float keep, float* scores, float* shifts,
                float* sums);
void weigh_sets(const SetRun& run, const uint16_t* draws, uint32_t threshold, double keep, double* scores,
                double* shifts, double* sums);
// Scores -> weights after dropout; slopes, the gradients of these [line] -> those of the scores, from the logarithms of
// the sums of weights and what softmax's gradient takes off of each set.
void slope_sets(const SetRun& run, const uint16_t* draws, uint32_t threshold, float keep, const float* log_sums,
                const float* deltas, float* scores, float* slopes);
void slope_sets(const SetRun& run, const uint16_t* draws, uint32_t threshold, double keep, const double* log_sums,
                const double* deltas, double* scores, double* slopes);
// out of each set = its factor times the sum over its tokens of weights[i] row_i. What a row holds whose weight is 0
// plays no part.
void weighted_sums(const float* rows, int64_t stride, const SetRun& run, const float* weights, int64_t width,
                   const float* factors, float* out, int64_t out_stride);
void weighted_sums(const double* rows, int64_t stride, const SetRun& run, const double* weights, int64_t width,
                   const double* factors, double* out, int64_t out_stride);
void weighted_sums(const c10::BFloat16* rows, int64_t stride, const SetRun& run, const float* weights, int64_t width,
                   const float* factors, float* out, int64_t out_stride);
// row_i = factor weights[i] x of its set, or with `more` added to what is there.
void spread(const float* x, int64_t x_stride, int64_t width, const float* weights, const SetRun& run, float factor,
            bool more, float* rows, int64_t stride);
void spread(const double* x, int64_t x_stride, int64_t width, const double* weights, const SetRun& run, double factor,
            bool more, double* rows, int64_t stride);

}  // namespace xformer::kernels
