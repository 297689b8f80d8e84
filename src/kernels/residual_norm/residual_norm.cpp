#include "kernels/residual_norm/residual_norm.h"

#include <ATen/Functions.h>

#include "kernels/cpu/needed_rows.h"
#include "kernels/fused.h"
#include "kernels/residual_norm/cpu.h"
#include "kernels/residual_norm/program.h"

namespace xformer::kernels {

namespace {

struct ResidualNormCall {
  at::Tensor x, branch;
  bool has_branch;
  DropoutPlace drop;
  NormWeights norm;
  at::Tensor needed;
  ResidualNormForward made;

  static constexpr const char* kName = "residual_norm";
  static inline const Operator<residual_norm_forward_cpu> kForward{"residual_norm_forward"};
  static inline const Operator<residual_norm_backward_cpu> kBackward{"residual_norm_backward"};
  static constexpr bool kPartialGradients = true, kTakesBf16 = true;

  static bool is_parameter(size_t input) { return input >= 2; }
  static bool takes_half(size_t input) { return input == 1; }
  [[nodiscard]] variable_list inputs() const { return {x, branch, norm.weight, norm.bias}; }
  variable_list forward() {
    if (has_branch) drop = remembering(drop, x.numel(), x.size(-1));
    made = kForward(x, branch, drop, norm, needed);
    x = made.sum, branch = at::Tensor();  // nothing is seen of x and branch but their sum: it is as if x were the sum
    return {made.sum, std::exchange(made.normed, {})};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    if (!gradients[1].defined()) {  // nobody used the normed rows
      const at::Tensor sum = has_branch ? needed_alone(gradients[0], needed) : gradients[0];
      return {sum, has_branch ? drop(sum) : at::Tensor(), {}, {}};
    }
    return tensors_of(kBackward(gradients[0], gradients[1], made, has_branch, drop, norm.weight, needed));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    const ResidualNorm meant = residual_norm_reference(in[0], in[1], drop, {in[2], in[3], norm.epsilon}, needed);
    return {meant.sum, meant.normed};
  }
};

struct ResidualCall {
  at::Tensor x, branch;
  DropoutPlace drop;

  static constexpr const char* kName = "residual";
  static inline const Operator<residual_norm_forward_cpu> kForward{"residual_forward"};
  static constexpr bool kTakesBf16 = true;

  static bool takes_half(size_t input) { return input == 1; }
  [[nodiscard]] variable_list inputs() const { return {x, branch}; }
  variable_list forward() {
    const at::Tensor sum = kForward(x, branch, drop, NormWeights(), at::Tensor()).sum;
    x = branch = at::Tensor();
    return {sum};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return {gradients[0], drop(gradients[0])};
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const { return {in[0] + drop(in[1])}; }
};

// On other devices than the CPU rows that are wide are LibTorch's, which makes all of them.
bool leaves_rows_out(const at::Tensor& x) {
  const ElementType type = x.scalar_type() == at::kDouble ? ElementType::kDouble : ElementType::kFloat;
  return x.is_cpu() || x.size(-1) <= widest_row(type);
}

}  // namespace

ResidualNorm residual_norm(const at::Tensor& x, const at::Tensor& branch, const DropoutPlace& drop,
                           const NormWeights& norm, const at::Tensor& needed) {
  ResidualNormCall call{x, branch, branch.defined(), drop, norm, {}, {}};
  if (leaves_rows_out(x)) call.needed = needed_of(call, needed);
  const variable_list result = run_fused(call);
  return {result[0], result[1]};
}

at::Tensor residual(const at::Tensor& x, const at::Tensor& branch, const DropoutPlace& drop) {
  return run_fused(ResidualCall{x, branch, drop})[0];
}

ResidualNorm residual_norm_reference(const at::Tensor& x, const at::Tensor& branch, const DropoutPlace& drop,
                                     const NormWeights& norm, const at::Tensor& needed) {
  const at::Tensor sum = branch.defined() ? needed_alone(x + drop(branch), needed) : x;
  const at::Tensor normed =
      at::layer_norm(sum, {sum.size(-1)}, norm.weight, norm.bias, norm.epsilon, /*cudnn_enable=*/false);
  return {sum, needed_alone(normed, needed)};
}

}  // namespace xformer::kernels
