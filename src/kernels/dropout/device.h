// dropout.h on a device, but for the launch itself: cuda.cpp gives one, tests walk the program. The signature is the
// CPU's (cpu.h).
#pragma once

#include <ATen/Functions.h>

#include "kernels/device/tensors.h"
#include "kernels/dropout/program.h"

namespace xformer::kernels {

// Launch takes DropoutArguments.
template <class Launch>
at::Tensor dropout_device(const at::Tensor& x_in, double p, const at::Tensor& state, int64_t site,
                          const Launch& launch) {
  const at::Tensor x = x_in.contiguous();
  at::Tensor result = at::empty_like(x);
  if (x.numel() == 0) return result;
  DropoutArguments a;
  a.type = element_type(x);
  a.x = x.const_data_ptr(), a.out = result.mutable_data_ptr();
  a.elements = x.numel();
  a.wide = reads_wide({x, result});
  a.drop = device_drop({p, state, site}, x);
  launch(a);
  return result;
}

}  // namespace xformer::kernels
