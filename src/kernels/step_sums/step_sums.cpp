#include "kernels/step_sums/step_sums.h"

#include <ATen/Functions.h>

#include "kernels/fused.h"

namespace xformer::kernels {

namespace {

// A CPU runs the definition: a handful of numbers.
const Operator<kNoCpuKernel<decltype(add_step_sums)>> add_step_sums_operator{"add_step_sums"};

}  // namespace

void add_step_sums(const at::Tensor& meter, const at::Tensor& sums, const at::Tensor& skipped) {
  const at::NoGradGuard no_grad;
  if (meter.is_cpu() || !add_step_sums_operator.runs_on(meter) || !fit_kernels({meter, sums, skipped}))
    return add_step_sums_reference(meter, sums, skipped);
  add_step_sums_operator(meter, sums, skipped);
}

void add_step_sums_reference(const at::Tensor& meter, const at::Tensor& sums, const at::Tensor& skipped) {
  const int64_t size = sums.numel();
  meter.narrow(0, 0, size).add_(at::where(skipped > 0, at::zeros_like(sums), sums));
  meter.select(0, size).add_(skipped);
  meter.select(0, size + 1).add_(1).mul_(skipped);
}

}  // namespace xformer::kernels
