#include "kernels/branch/branch.h"

#include <optional>

#include "kernels/branch/cpu.h"
#include "kernels/branch/device.h"
#include "kernels/cpu/needed_rows.h"
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
  static inline const Operator<branch_forward_cpu> kForward{"branch_forward"};
  static inline const Operator<branch_backward_cpu> kBackward{"branch_backward"};
  static constexpr bool kPartialGradients = true, kRoundsProducts = true, kTakesBf16 = true;

  static bool is_parameter(size_t input) { return input >= 2; }
  static bool takes_half(size_t input) { return input == 1; }

  // The rows that a branch normalises are x, by that name alone.
  [[nodiscard]] variable_list inputs() const {
    const bool own = branch.normalises();
    return {own ? branch.rows : x, own ? at::Tensor() : branch.rows,
            branch.out.weight,     branch.out.bias,
            branch.in.weight,      branch.in.bias,
            norm.weight,           norm.bias,
            branch.norm.weight,    branch.norm.bias};
  }
  variable_list forward() {
    count_products(1);
    drop = remembering(drop, x.numel(), x.size(-1));
    if (branch.in.weight.defined()) {
      const int64_t width = branch.in.weight.size(0);
      branch.drop = remembering(branch.drop, width * (branch.rows.numel() / branch.rows.size(-1)), width);
    }
    made = kForward(x, branch, drop, norm);
    if (norm.weight.defined()) return {made.norm.sum, std::exchange(made.norm.normed, {})};
    x = at::Tensor();  // no gradient needs it, nor the sum
    return {std::exchange(made.norm.sum, {})};
  }
  // Rows of 16 bits are multiplied so, and gradients of floats with them.
  [[nodiscard]] at::ScalarType kept_type() const {
    return made.z.defined() ? made.z.scalar_type() : branch.rows.scalar_type();
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    count_products(2);
    return tensors_of(
        kBackward(gradients[0], gradients.size() > 1 ? gradients[1] : at::Tensor(), made, branch, drop, norm.weight));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    const bool own = branch.normalises();
    Branch meant_branch = branch;
    meant_branch.rows = in[own ? 0 : 1], meant_branch.out = {in[2], in[3]}, meant_branch.in = {in[4], in[5]};
    meant_branch.norm.weight = in[8], meant_branch.norm.bias = in[9];
    const at::Tensor end = meant_branch.made();
    if (own) return {needed_alone(residual(in[0], end, drop), branch.needed)};
    if (!norm.weight.defined()) return {residual(in[0], end, drop)};
    const ResidualNorm meant = residual_norm(in[0], end, drop, {in[6], in[7], norm.epsilon}, branch.needed);
    return {meant.sum, meant.normed};
  }
  // The CPU's products count themselves.
  void count_products(int64_t times) const {
    if (branch.rows.is_cpu()) return;
    const int64_t rows = branch.rows.numel() / branch.rows.size(-1);
    const int64_t in = branch.in.weight.defined() ? branch.in.weight.numel() : 0;
    add_executed_flops(times * 2 * rows * (in + branch.out.weight.numel()));
  }
};

// Whether the maker's kernels take its weights.
bool fits_cpu(const Branch& branch) {
  const auto small = [&](const LinearMap& map) {
    return map.weight.numel() > 0 && map.weight.numel() <= most_weights(branch.rows);
  };
  return branch.out.weight.defined() && branch.rows.numel() > 0 && small(branch.out) &&
         (!branch.in.weight.defined() || small(branch.in));
}

// The call as kernels run it: devices leave the norm of a branch's rows to others.
std::optional<BranchCall> fused_call(const at::Tensor& x, const Branch& branch, const DropoutPlace& drop,
                                     const NormWeights& norm) {
  BranchCall call{x, branch, drop, norm, {}};
  const bool own_fits = x.is_cpu() && branch.rows.is_same(x) && branch.in.weight.defined() && !norm.weight.defined();
  if (branch.normalises() && !own_fits) return std::nullopt;
  const bool fits = x.is_cpu() ? fits_cpu(branch) : fits_branch_programs(x, branch, norm);
  if (!fits || autocast_takes_products(branch.rows) || !fused_type<BranchCall>(call.inputs())) return std::nullopt;
  return call;
}

}  // namespace

at::Tensor Branch::made() const {
  if (normalises()) return Branch{residual_norm(rows, {}, {}, norm, needed).normed, out, in, tanh, drop, needed}.made();
  if (in.weight.defined()) return feed_forward(rows, in, out, tanh, drop, needed);
  return out.weight.defined() ? linear(rows, out, needed) : rows;
}

ResidualNorm branch_norm(const at::Tensor& x, const Branch& branch, const DropoutPlace& drop, const NormWeights& norm) {
  const std::optional<BranchCall> call = fused_call(x, branch, drop, norm);
  if (!call) return residual_norm(x, branch.made(), drop, norm, branch.needed);
  const variable_list result = run_fused(*call);
  return {result[0], result[1]};
}

bool added_as_made(const at::Tensor& x, const Branch& branch) { return fused_call(x, branch, {}, {}).has_value(); }

at::Tensor add_branch(const at::Tensor& x, const Branch& branch, const DropoutPlace& drop) {
  const std::optional<BranchCall> call = fused_call(x, branch, drop, {});
  if (call) return run_fused(*call)[0];
  const at::Tensor sum = residual(x, branch.made(), drop);
  return branch.normalises() ? needed_alone(sum, branch.needed) : sum;
}

}  // namespace xformer::kernels
