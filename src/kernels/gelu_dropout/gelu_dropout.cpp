#include "kernels/gelu_dropout/gelu_dropout.h"

#include <ATen/Functions.h>

#include "kernels/fused.h"
#include "kernels/gelu_dropout/cpu.h"

namespace xformer::kernels {

namespace {

struct GeluDropoutCall {
  at::Tensor x;
  bool tanh;
  DropoutPlace drop;

  static constexpr const char* kName = "gelu_dropout";
  static inline const Operator<gelu_dropout_forward_cpu> kForward{"gelu_dropout_forward"};
  static inline const Operator<gelu_dropout_backward_cpu> kBackward{"gelu_dropout_backward"};
  static constexpr bool kTakesBf16 = true;

  static bool takes_half(size_t /*input*/) { return true; }
  [[nodiscard]] variable_list inputs() const { return {x}; }
  variable_list forward() { return {kForward(x, tanh, drop)}; }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return {kBackward(gradients[0], x, tanh, drop)};
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {gelu_dropout_reference(in[0], tanh, drop)};
  }
};

}  // namespace

at::Tensor gelu_dropout(const at::Tensor& x, bool tanh, const DropoutPlace& drop) {
  return run_fused(GeluDropoutCall{x, tanh, drop})[0];
}

at::Tensor gelu_dropout_reference(const at::Tensor& x, bool tanh, const DropoutPlace& drop) {
  return drop(at::gelu(x, tanh ? "tanh" : "none"));
}

}  // namespace xformer::kernels
