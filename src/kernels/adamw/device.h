// AdamW on a device, but for the launch itself: cuda.cpp gives one, tests walk the program instead.
#pragma once

#include "kernels/adamw/adamw.h"
#include "kernels/adamw/program.h"
#include "kernels/device/tensors.h"

namespace xformer::kernels {

// Launch takes AdamWArguments.
template <class Launch>
void adamw_device(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& m, const at::Tensor& v,
                  const AdamWControls& controls, const AdamWConstants& constants, const Launch& launch) {
  if (x.numel() == 0) return;
  AdamWArguments a;
  a.type = element_type(x);
  a.x = x.mutable_data_ptr(), a.m = m.mutable_data_ptr(), a.v = v.mutable_data_ptr();
  a.gradient = gradient.const_data_ptr();
  a.learning_rate = device_number(controls.learning_rate, x), a.beta1 = device_number(controls.beta1, x);
  a.factor = device_number(controls.factor, x), a.step = device_number(controls.step, x);
  a.skip = device_number(controls.skip, x);
  a.beta2 = constants.beta2, a.epsilon = constants.epsilon, a.weight_decay = constants.weight_decay;
  a.rectified = constants.rectified;
  a.elements = x.numel(), a.decayed = constants.decayed;
  a.wide = reads_wide({x, gradient, m, v});
  launch(a);
}

}  // namespace xformer::kernels
