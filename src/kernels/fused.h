// What all fused operators share: when they run, and how --kernels=check holds them against their reference.
//
// A fused operator is three things: `x_reference`, composed of plain tensor operations, which defines its meaning and
// its gradient on any device and in any type; a CPU kernel for float and double with a backward pass of its own; and
// the public function `x`, which takes the kernel where it can.
#pragma once

#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <array>
#include <atomic>
#include <functional>
#include <initializer_list>
#include <optional>

namespace xformer::kernels {

using torch::autograd::variable_list;

// Calls of one operator since the last reset_backends() (policy.h).
struct CallCounts {
  std::atomic<int64_t> reference{0};
  std::array<std::atomic<int64_t>, static_cast<size_t>(c10::COMPILE_TIME_MAX_DEVICE_TYPES)> fused{};

  void count(const at::Tensor& operand, bool by_kernel) {
    (by_kernel ? fused.at(static_cast<size_t>(operand.device().type())) : reference)
        .fetch_add(1, std::memory_order_relaxed);
  }
};
// Those of the operator `name`, which stay where they are.
[[nodiscard]] CallCounts& calls_of(const std::string& name);

// Whether the policy lets fused operators run at all.
[[nodiscard]] bool fused_wanted();
// Whether the CPU kernel may run: the policy lets it, nobody looks at tensors inside (tensor/probe.h), and all
// defined tensors lie in host memory as one of float and double.
[[nodiscard]] bool runs_fused(const char* name, std::initializer_list<at::Tensor> tensors);
// The same for operators inside which there is nothing to look at: the same bits whether somebody listens or not.
[[nodiscard]] bool runs_fused_heard(const char* name, std::initializer_list<at::Tensor> tensors);

// What an operator reads, for RECORD_FUNCTION: every defined tensor of those given, alone or in lists. Only asked for
// while somebody profiles.
inline void add_operands(std::vector<c10::IValue>& all, const at::Tensor& given) {
  if (given.defined()) all.emplace_back(given);
}
inline void add_operands(std::vector<c10::IValue>& all, const std::optional<at::Tensor>& given) {
  if (given) add_operands(all, *given);
}
inline void add_operands(std::vector<c10::IValue>& all, at::TensorList given) {
  for (const at::Tensor& tensor : given) add_operands(all, tensor);
}
template <class... Given>
[[nodiscard]] std::vector<c10::IValue> operands(const Given&... given) {
  std::vector<c10::IValue> all;
  (add_operands(all, given), ...);
  return all;
}

// Under --kernels=check: InternalError unless `got` is what `reference` makes of the same arguments, within `tolerance`
// of float (of the largest element) and 1e-9 of double.
void check_forward(const char* name, const variable_list& got, const std::function<variable_list()>& reference,
                   double tolerance = 1e-4);

// The same for a backward pass: `inputs` are the operator's tensors, `got` their gradients (undefined: none is asked
// for), `gradients` those of the outputs; the reference is called with inputs that require gradients where got is
// defined.
void check_backward(const char* name, const variable_list& inputs, const variable_list& gradients,
                    const variable_list& got,
                    const std::function<variable_list(const variable_list& inputs)>& reference,
                    double tolerance = 1e-3);

}  // namespace xformer::kernels
