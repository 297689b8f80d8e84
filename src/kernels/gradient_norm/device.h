// The norm of gradients on a device, but for the launch itself: cuda.cpp gives it, tests walk the program.
#pragma once

#include "kernels/device/tensors.h"
#include "kernels/gradient_norm/gradient_norm.h"
#include "kernels/gradient_norm/program.h"

namespace xformer::kernels {

// Launch takes GradientNormArguments.
template <class Launch>
void gradient_norm_device(const at::Tensor& gradients, const at::Tensor& loss_scale, double clip,
                          const GradientControls& controls, const Launch& launch) {
  TORCH_CHECK(gradients.is_contiguous(), "gradients are one flat buffer");
  const at::Tensor parts =
      at::empty({norm_parts_grid(gradients.numel()).blocks}, gradients.options().dtype(at::kDouble));
  GradientNormArguments a;
  a.type = element_type(gradients);
  a.gradients = gradients.const_data_ptr(), a.elements = gradients.numel();
  a.wide = reads_wide({gradients});
  a.parts = parts.mutable_data_ptr<double>();
  if (loss_scale.defined()) a.loss_scale = loss_scale.const_data_ptr<float>();
  a.clip = clip;
  a.norm = device_number(controls.norm, gradients), a.factor = device_number(controls.factor, gradients);
  a.skip = device_number(controls.skip, gradients), a.step = device_number(controls.step, gradients);
  TORCH_CHECK(controls.ready.scalar_type() == at::kInt && controls.ready.device() == gradients.device(),
              "the count of blocks is int32 on the device");
  a.ready = controls.ready.mutable_data_ptr<int32_t>();
  launch(a);
}

}  // namespace xformer::kernels
