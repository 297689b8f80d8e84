// A step's sums on a device, but for the launch itself: cuda.cpp gives it, tests walk the program.
#pragma once

#include "kernels/device/tensors.h"
#include "kernels/step_sums/program.h"

namespace xformer::kernels {

// Launch takes StepSumsArguments.
template <class Launch>
void step_sums_device(const at::Tensor& meter, const at::Tensor& sums, const at::Tensor& skipped,
                      const Launch& launch) {
  TORCH_CHECK(meter.scalar_type() == at::kDouble && sums.scalar_type() == at::kDouble && meter.is_contiguous() &&
                  sums.is_contiguous() && meter.numel() == sums.numel() + 2,
              "a step's sums are float64 [k], the run's [k+2]");
  launch(StepSumsArguments{meter.mutable_data_ptr<double>(), sums.const_data_ptr<double>(),
                           device_number(skipped, meter), sums.numel()});
}

}  // namespace xformer::kernels
