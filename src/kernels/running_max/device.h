// The passes of running_max.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the
// programs. The signatures are those of the operator's kernels for the CPU.
#pragma once

#include "kernels/device/head_tensors.h"
#include "kernels/running_max/program.h"
#include "kernels/running_max/running_max.h"

namespace xformer::kernels {

// Whether a device's programs take such cells.
[[nodiscard]] inline bool fits_running_max_program(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat && x.numel() > 0;
}

// Launch takes RunningMaxArguments; x and the gradient, undefined forwards, are contiguous.
template <class Launch>
at::Tensor running_max_on_device(const at::Tensor& x, const at::Tensor& gradient, const RunningMaxOptions& options,
                                 const Launch& launch) {
  TORCH_CHECK(fits_running_max_program(x) && x.is_contiguous(), "running_max on a device takes floats without gaps");
  const at::Tensor valid = readable_flags(options.valid);
  at::Tensor result = at::empty_like(x);
  RunningMaxArguments a;
  a.x = read_floats(x), a.gradient = read_floats(gradient), a.result = written_floats(result);
  a.heads_of_sample = x.size(1), a.heads = x.size(0) * x.size(1);
  a.rows = x.size(2), a.columns = x.size(3), a.d = x.size(4);
  a.valid = valid_flags(valid, x.size(0), a.rows * a.columns);
  a.down = options.down, a.behind = options.behind;
  launch(a);
  return result;
}

}  // namespace xformer::kernels
