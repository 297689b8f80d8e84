// The passes of set_max (token_sets.h) on a device, but for the launches themselves: cuda.cpp gives them, tests walk
// the programs. The signatures are those of the operator's kernels for the CPU.
#pragma once

#include "kernels/device/head_tensors.h"
#include "kernels/token_sets/program.h"
#include "kernels/token_sets/token_sets.h"

namespace xformer::kernels {

// Whether a device's programs take such tokens.
[[nodiscard]] inline bool fits_set_max_program(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat && x.numel() > 0;
}

// Operands as programs read them, which must outlive the launch, and what it is told.
struct SetMaxOperands {
  at::Tensor x, valid;
  SetMaxArguments a;

  SetMaxOperands(const at::Tensor& x_in, const TokenSets& sets)
      : x(readable_heads(x_in)), valid(readable_flags(sets.valid)) {
    TORCH_CHECK(fits_set_max_program(x), "set_max on a device takes floats");
    a.x = read_floats(x), a.places = head_places(x);
    a.b = x.size(0), a.h = x.size(1), a.n = x.size(2), a.d = x.size(3);
    a.size = sets.size, a.t = sets.count(a.n);
    a.valid = valid_flags(valid, a.b, a.n);
  }
};

// Launch takes SetMaxArguments.
template <class Launch>
at::Tensor set_max_forward_device(const at::Tensor& x, const TokenSets& sets, const Launch& launch) {
  SetMaxOperands operands(x, sets);
  SetMaxArguments& a = operands.a;
  at::Tensor result = at::empty({a.b, a.h, a.t, a.d}, x.options());
  a.largest = written_floats(result);
  launch(a);
  return result;
}

// The same; `out` is what the forward pass made.
template <class Launch>
at::Tensor set_max_backward_device(const at::Tensor& gradient_in, const at::Tensor& x, const at::Tensor& out,
                                   const TokenSets& sets, const Launch& launch) {
  SetMaxOperands operands(x, sets);
  SetMaxArguments& a = operands.a;
  const at::Tensor gradient = gradient_in.contiguous();
  TORCH_CHECK(out.is_contiguous(), "set_max's result lies without gaps");
  at::Tensor result = rows_of_heads(x, a.n, a.d);
  a.largest = written_floats(out), a.gradient = read_floats(gradient), a.result = written_floats(result);
  launch(a);
  return result;
}

}  // namespace xformer::kernels
