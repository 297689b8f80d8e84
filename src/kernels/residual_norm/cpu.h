// The CPU's two passes of residual_norm.h, for float and double, and for bf16 with norm weights in float.
#pragma once

#include <ATen/OpMathType.h>

#include <vector>

#include "kernels/residual_norm/residual_norm.h"

namespace xformer::kernels {

struct ResidualNormForward {
  at::Tensor sum, normed;  // as x; the sum is x itself without a branch
  at::Tensor mean, rstd;   // [rows], float where x is bf16
};

// Without norm weights only the sum is made.
[[nodiscard]] ResidualNormForward residual_norm_forward_cpu(const at::Tensor& x, const at::Tensor& branch,
                                                            const DropoutPlace& drop, const NormWeights& norm,
                                                            const at::Tensor& needed);

struct ResidualNormGradients {
  at::Tensor x, branch, weight, bias;  // branch: undefined if there was none
};

// sum_gradient may be undefined.
[[nodiscard]] ResidualNormGradients residual_norm_backward_cpu(const at::Tensor& sum_gradient,
                                                               const at::Tensor& normed_gradient,
                                                               const ResidualNormForward& forward, bool has_branch,
                                                               const DropoutPlace& drop, const at::Tensor& weight,
                                                               const at::Tensor& needed);

// Some rows. `draws`: 16 bits an element, or nullptr without dropout.
struct DropRule {
  const uint16_t* draws;
  uint32_t threshold;
  double keep;
};

// sum = x + drop(branch).
void residual_rows(const float* x, const float* branch, const DropRule& drop, int64_t count, float* sum);
void residual_rows(const double* x, const double* branch, const DropRule& drop, int64_t count, double* sum);

template <class Value>
struct NormForwardRows {
  int64_t rows, width;
  const Value *sum, *weight, *bias;
  Value epsilon;
  Value *normed, *mean, *rstd;
};
void norm_rows(const NormForwardRows<float>& block);
void norm_rows(const NormForwardRows<double>& block);
// The same to the bit where mean and rstd are there already.
void norm_rows_again(const NormForwardRows<float>& block);
void norm_rows_again(const NormForwardRows<double>& block);

// Adds to weight_gradient and bias_gradient [width].
template <class Value>
struct NormBackwardRows {
  int64_t rows, width;
  const Value *sum, *mean, *rstd, *weight, *normed_gradient, *sum_gradient;  // the last may be nullptr
  Value *x_gradient, *weight_gradient, *bias_gradient;
};
void norm_gradient_rows(const NormBackwardRows<float>& block);
void norm_gradient_rows(const NormBackwardRows<double>& block);

// out = drop(in).
void drop_rows(const float* in, const DropRule& drop, int64_t count, float* out);
void drop_rows(const double* in, const DropRule& drop, int64_t count, double* out);

// A block of rows without gaps, as they are stored, from the sum to the norm of it before it is rounded.
template <class Stored>
struct BlockForward {
  using Value = at::opmath_type<Stored>;
  int64_t rows, width;
  const Stored *x, *branch;  // the latter nullptr: none
  DropRule drop;             // of the branch
  Stored* sum;               // where there is a branch
  const Value *weight, *bias;
  Value epsilon;
  Stored* normed;  // nullptr: there is no norm
  Value *mean, *rstd;
};
template <class Stored>
struct BlockBackward {
  using Value = at::opmath_type<Stored>;
  int64_t rows, width;
  const Stored* sum;
  const Value *mean, *rstd, *weight;
  const Stored *normed_gradient, *sum_gradient;  // the latter may be nullptr
  DropRule drop;
  Stored *x_gradient, *branch_gradient;    // the latter nullptr: it is that of x, or there is none
  Value *weight_gradient, *bias_gradient;  // gain their sums
};

// Where has_bf16_512() (kernels/cpu/lanes_512.h).
namespace by_512 {
void norm_block(const BlockForward<c10::BFloat16>& block, std::vector<float>& room);
void norm_block_again(const BlockForward<c10::BFloat16>& block);
void norm_gradient_block(const BlockBackward<c10::BFloat16>& block, std::vector<float>& room);
void drop_rows(const c10::BFloat16* in, const DropRule& drop, int64_t count, c10::BFloat16* out);
}  // namespace by_512

}  // namespace xformer::kernels
