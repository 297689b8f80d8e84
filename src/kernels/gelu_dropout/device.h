// The passes of gelu_dropout.h on a device, but for the launch itself: cuda.cpp gives one, tests walk the program. The
// signatures are the CPU's (cpu.h).
#pragma once

#include <ATen/Functions.h>

#include "kernels/device/tensors.h"
#include "kernels/gelu_dropout/program.h"

namespace xformer::kernels {

// Both passes; Launch takes GeluDropoutArguments. `gradient` is undefined forwards.
template <class Launch>
at::Tensor gelu_dropout_device(const at::Tensor& gradient_in, const at::Tensor& x_in, bool tanh,
                               const DropoutPlace& drop, const Launch& launch) {
  const at::Tensor x = x_in.contiguous(), gradient = gradient_in.defined() ? gradient_in.contiguous() : gradient_in;
  TORCH_CHECK(!gradient.defined() || (gradient.sizes() == x.sizes() && gradient.scalar_type() == x.scalar_type()),
              "a gradient unlike its activation");
  const at::Tensor result = at::empty_like(x);
  if (x.numel() == 0) return result;
  GeluDropoutArguments a;
  a.type = element_type(x);
  a.x = x.const_data_ptr(), a.out = result.mutable_data_ptr();
  if (gradient.defined()) a.gradient = gradient.const_data_ptr();
  a.elements = x.numel(), a.tanh = tanh;
  a.wide = reads_wide({x, gradient, result});
  a.drop = device_drop(drop, x);
  launch(a);
  return result;
}

}  // namespace xformer::kernels
