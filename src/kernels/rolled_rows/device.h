// The passes of rolled_rows.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the
// programs. The signatures are those of the operator's kernels for the CPU.
#pragma once

#include "kernels/device/head_tensors.h"
#include "kernels/rolled_rows/program.h"
#include "kernels/rolled_rows/rolled_rows.h"

namespace xformer::kernels {

struct RolledGradients {
  at::Tensor v, w;
};

// Whether a device's programs take such rows and links.
[[nodiscard]] inline bool fits_rolled_programs(const at::Tensor& v, const at::Tensor& w) {
  return v.scalar_type() == at::kFloat && w.scalar_type() == at::kFloat && v.numel() > 0 && w.numel() > 0 &&
         w.size(2) <= kMostLinks && numbered_by_ints({v});
}

// Operands as programs read them, which must outlive the launch, and what it is told.
struct RolledOperands {
  at::Tensor v, w, valid;
  RolledArguments a;

  RolledOperands(const at::Tensor& v_in, const at::Tensor& w_in, const RolledRowsOptions& options)
      : v(v_in.contiguous()), w(w_in.contiguous()), valid(readable_flags(options.valid)) {
    TORCH_CHECK(fits_rolled_programs(v, w), "rolled_rows on a device takes floats and at most ", kMostLinks, " links");
    a.v = read_floats(v), a.w = read_floats(w);
    a.b = v.size(0), a.n = v.size(1);
    a.e = static_cast<int>(v.size(2)), a.links = static_cast<int>(w.size(2));
    a.valid = valid_flags(valid, a.b, a.n);
    a.residual = options.residual;
    for (int p = 0; p < a.links; ++p) a.steps[p] = step_of(options.offsets[static_cast<size_t>(p)], a.n);
  }
};

// Launch takes RolledArguments.
template <class Launch>
at::Tensor rolled_forward_device(const at::Tensor& v, const at::Tensor& w, const RolledRowsOptions& options,
                                 const Launch& launch) {
  RolledOperands operands(v, w, options);
  at::Tensor result = at::empty_like(operands.v);
  RolledArguments& a = operands.a;
  a.result = written_floats(result);
  a.wide = a.e % kRun == 0 && reads_wide({operands.v, result});
  launch(a);
  return result;
}

// The same.
template <class Launch>
RolledGradients rolled_backward_device(const at::Tensor& gradient_in, const at::Tensor& v, const at::Tensor& w,
                                       const RolledRowsOptions& options, const Launch& launch) {
  RolledOperands operands(v, w, options);
  const at::Tensor gradient = gradient_in.contiguous();
  RolledGradients result{at::empty_like(operands.v), at::empty_like(operands.w)};
  RolledArguments& a = operands.a;
  a.gradient = read_floats(gradient);
  a.result = written_floats(result.v), a.w_gradient = written_floats(result.w);
  a.wide = a.e % kRun == 0 && reads_wide({operands.v, gradient, result.v});
  launch(a);
  return result;
}

}  // namespace xformer::kernels
