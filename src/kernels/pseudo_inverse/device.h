// The passes of pseudo_inverse.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the
// programs. The signatures are those of the operator's kernels for the CPU.
#pragma once

#include "kernels/device/head_tensors.h"
#include "kernels/pseudo_inverse/program.h"

namespace xformer::kernels {

// The result [b,h,m,m], and what the iterations had: on a device every Z, [b,h,iterations,m,m].
struct Inverse {
  at::Tensor result, kept;
};

// Whether a device's programs take such a matrix.
[[nodiscard]] inline bool fits_pseudo_inverse_programs(const at::Tensor& a) {
  return a.scalar_type() == at::kFloat && a.numel() > 0 && a.size(2) <= kMostLandmarks;
}

// All but the tensors that are written; `a` and `valid`, without gaps, must outlive the launch.
[[nodiscard]] inline PseudoInverseArguments pseudo_inverse_arguments(const at::Tensor& a, const at::Tensor& valid,
                                                                     int64_t iterations) {
  TORCH_CHECK(fits_pseudo_inverse_programs(a) && a.is_contiguous(), "pseudo_inverse on a device takes matrices of ",
              "floats without gaps, at most ", kMostLandmarks, " wide");
  PseudoInverseArguments arguments;
  arguments.a = read_floats(a);
  arguments.valid = valid_flags(valid, a.size(0), a.size(2));
  arguments.heads = a.size(1), arguments.units = a.size(0) * a.size(1);
  arguments.m = static_cast<int>(a.size(2));
  arguments.iterations = iterations;
  return arguments;
}

// Launch takes PseudoInverseArguments.
template <class Launch>
Inverse pseudo_inverse_forward_device(const at::Tensor& a_in, const at::Tensor& landmarks_valid, int64_t iterations,
                                      const Launch& launch) {
  const at::Tensor a = a_in.contiguous();
  const at::Tensor valid = readable_flags(landmarks_valid);
  const int64_t m = a.size(2);
  PseudoInverseArguments arguments = pseudo_inverse_arguments(a, valid, iterations);
  const Inverse inverse{at::empty_like(a), at::empty({a.size(0), a.size(1), iterations, m, m}, a.options())};
  arguments.result = written_floats(inverse.result), arguments.kept = written_floats(inverse.kept);
  arguments.wide = m % kRun == 0 && reads_wide({a, inverse.result, inverse.kept});
  launch(arguments);
  return inverse;
}

// The same.
template <class Launch>
at::Tensor pseudo_inverse_backward_device(const at::Tensor& gradient_in, const at::Tensor& a_in, const at::Tensor& kept,
                                          const at::Tensor& landmarks_valid, int64_t iterations, const Launch& launch) {
  const at::Tensor a = a_in.contiguous(), gradient = gradient_in.contiguous();
  const at::Tensor valid = readable_flags(landmarks_valid);
  PseudoInverseArguments arguments = pseudo_inverse_arguments(a, valid, iterations);
  at::Tensor result = at::empty_like(a);
  arguments.gradient = read_floats(gradient);
  arguments.result = written_floats(result), arguments.kept = written_floats(kept);
  arguments.wide = a.size(2) % kRun == 0 && reads_wide({a, gradient, result, kept});
  launch(arguments);
  return result;
}

}  // namespace xformer::kernels
