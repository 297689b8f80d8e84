#include "kernels/feed_forward/feed_forward.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "kernels/cpu/needed_rows.h"
#include "kernels/feed_forward/cpu.h"
#include "kernels/feed_forward/program.h"
#include "kernels/gelu_dropout/gelu_dropout.h"
#include "kernels/linear/autocast.h"
#include "kernels/linear/program.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

struct FeedForwardCall {
  at::Tensor x;
  LinearMap in, out;
  bool tanh;
  DropoutPlace drop;
  at::Tensor needed, z;

  static constexpr const char* kName = "feed_forward";
  static inline const Operator<feed_forward_forward_cpu> kForward{"feed_forward_forward"};
  static inline const Operator<feed_forward_backward_cpu> kBackward{"feed_forward_backward"};
  static constexpr bool kTakesBf16 = true;

  static bool is_parameter(size_t input) { return input > 0; }
  static bool takes_half(size_t input) { return input == 0; }
  [[nodiscard]] variable_list inputs() const { return {x, in.weight, in.bias, out.weight, out.bias}; }
  variable_list forward() {
    count_products(1, 1);
    drop = remembering(drop, in.weight.size(0) * (x.numel() / x.size(-1)), in.weight.size(0));
    const FeedForwardForward made = kForward(x, in, out, tanh, drop, needed);
    z = made.z;
    return {made.out};
  }
  [[nodiscard]] at::ScalarType kept_type() const { return z.defined() ? z.scalar_type() : at::kFloat; }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool x_wanted) const {
    count_products(x_wanted ? 2 : 1, 2);
    return tensors_of(kBackward(gradients[0], x, z, in, out, tanh, drop, needed, x_wanted));
  }
  [[nodiscard]] variable_list reference(const variable_list& given) const {
    return {feed_forward_reference(given[0], {given[1], given[2]}, {given[3], given[4]}, tanh, drop, needed)};
  }
  // So often by either map. The CPU's products count themselves.
  void count_products(int64_t by_in, int64_t by_out) const {
    if (x.is_cpu()) return;
    const int64_t rows = x.numel() / x.size(-1);
    add_executed_flops(2 * rows * (by_in * in.weight.numel() + by_out * out.weight.numel()));
  }
};

// Other devices than the CPU take narrow rows, and no doubles.
bool part_fits_device(const FeedForwardCall& call) {
  return call.x.is_cpu() || (call.x.scalar_type() != at::kDouble && call.x.size(-1) <= kFeedForwardWidest &&
                             call.out.weight.size(0) <= kFeedForwardWidest);
}

}  // namespace

at::Tensor feed_forward(const at::Tensor& x, const LinearMap& in, const LinearMap& out, bool tanh,
                        const DropoutPlace& drop, const at::Tensor& needed) {
  const bool small = std::max(in.weight.numel(), out.weight.numel()) <= most_weights(x);
  FeedForwardCall call{x, in, out, tanh, drop, {}, {}};
  if (small && x.numel() > 0 && !autocast_takes_products(x) && part_fits_device(call) &&
      fused_type<FeedForwardCall>(call.inputs())) {
    call.needed = needed_of(call, needed);
    return run_fused(call)[0];
  }
  return linear(gelu_dropout(linear(x, in, needed), tanh, drop), out, needed);
}

at::Tensor feed_forward_reference(const at::Tensor& x, const LinearMap& in, const LinearMap& out, bool tanh,
                                  const DropoutPlace& drop, const at::Tensor& needed) {
  const at::Tensor active = gelu_dropout_reference(at::linear(x, in.weight, in.bias), tanh, drop);
  return needed_alone(at::linear(active, out.weight, out.bias), needed);
}

}  // namespace xformer::kernels
