// Which implementation the operators use: --kernels=auto|blas|composite|reference|check.
#pragma once

#include <map>
#include <string>

namespace xformer::kernels {

enum class Policy {
  kAuto,       // the fastest for the device
  kBlas,       // the same, but every product of a tile by LibTorch's BLAS (cpu/gemm.h)
  kComposite,  // no fused operator but dropout: what a device without kernels of ours runs
  kReference,  // the plain composition of tensor operations
  kCheck,      // both; a difference beyond the type's tolerance is an InternalError naming the operator
};

[[nodiscard]] Policy parse_policy(const std::string& name);
void set_policy(Policy policy);
[[nodiscard]] Policy policy();

// What ran since the start of the process or the last reset_backends(), taken from the calls themselves: operator ->
// "fused-cpu", "fused-cuda", "reference" (the composition), several joined by "+"; and products -> the library of their
// tiles (cpu/gemm.h).
[[nodiscard]] std::map<std::string, std::string> backends_run();
void reset_backends();

}  // namespace xformer::kernels
