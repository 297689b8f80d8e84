#include "kernels/branch/branch.h"

#include "kernels/branch/device.h"
#include "kernels/feed_forward/feed_forward.h"
#include "kernels/fused.h"
#include "kernels/linear/autocast.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

struct BranchCall {
  at::Tensor x;
  Branch branch;
  DropoutPlace drop;
  NormWeights norm;
  BranchForward made;

  static constexpr const char* kName = "branch";
  static inline const Operator<kNoCpuKernel<BranchForwardPass>> kForward{"branch_forward"};
  static inline const Operator<kNoCpuKernel<BranchBackwardPass>> kBackward{"branch_backward"};
  static constexpr bool kPartialGradients = true, kRoundsProducts = true;

  static bool takes_half(size_t input) { return input == 1; }

  [[nodiscard]] variable_list inputs() const {
    return {x,           branch.rows, branch.out.weight, branch.out.bias, branch.in.weight, branch.in.bias,
            norm.weight, norm.bias};
  }
  variable_list forward() {
    count_products(1);
    made = kForward(x, branch, drop, norm);
    if (norm.weight.defined()) return {made.norm.sum, std::exchange(made.norm.normed, {})};
    x = at::Tensor();  // no gradient needs it, nor the sum
    return {std::exchange(made.norm.sum, {})};
  }
  [[nodiscard]] at::ScalarType kept_type() const { return made.z.defined() ? made.z.scalar_type() : at::kFloat; }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    count_products(2);
    return tensors_of(
        kBackward(gradients[0], gradients.size() > 1 ? gradients[1] : at::Tensor(), made, branch, drop, norm.weight));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    const at::Tensor end = Branch{in[1], {in[2], in[3]}, {in[4], in[5]}, branch.tanh, branch.drop}.made();
    if (!norm.weight.defined()) return {residual(in[0], end, drop)};
    const ResidualNorm meant = residual_norm(in[0], end, drop, {in[6], in[7], norm.epsilon});
    return {meant.sum, meant.normed};
  }
  void count_products(int64_t times) const {
    const int64_t rows = branch.rows.numel() / branch.rows.size(-1);
    const int64_t in = branch.in.weight.defined() ? branch.in.weight.numel() : 0;
    add_executed_flops(times * 2 * rows * (in + branch.out.weight.numel()));
  }
};

// A CPU makes the branch first.
bool runs_on_device(const BranchCall& call) {
  return !call.x.is_cpu() && fits_branch_programs(call.x, call.branch, call.norm) &&
         !autocast_takes_products(call.branch.rows) && fused_type<BranchCall>(call.inputs());
}

// As a device makes it.
Branch of_all_rows(Branch branch) {
  branch.needed = at::Tensor();
  return branch;
}

}  // namespace

at::Tensor Branch::made() const {
  if (in.weight.defined()) return feed_forward(rows, in, out, tanh, drop, needed);
  return out.weight.defined() ? linear(rows, out, needed) : rows;
}

ResidualNorm branch_norm(const at::Tensor& x, const Branch& branch, const DropoutPlace& drop, const NormWeights& norm) {
  const BranchCall call{x, of_all_rows(branch), drop, norm, {}};
  if (!runs_on_device(call)) return residual_norm(x, branch.made(), drop, norm, branch.needed);
  const variable_list result = run_fused(call);
  return {result[0], result[1]};
}

at::Tensor add_branch(const at::Tensor& x, const Branch& branch, const DropoutPlace& drop) {
  const BranchCall call{x, of_all_rows(branch), drop, {}, {}};
  return runs_on_device(call) ? run_fused(call)[0] : residual(x, branch.made(), drop);
}

}  // namespace xformer::kernels
