// Who multiplies: our kernels or LibTorch.
#pragma once

#include "kernels/cpu/blas.h"
#include "kernels/fused.h"
#include "kernels/linear/program.h"

namespace xformer::kernels {

// Whether products on x's device are LibTorch's now: on a CPU, under autocast to another type than ours.
[[nodiscard]] inline bool autocast_takes_products(const at::Tensor& x) {
  return x.is_cpu() && autocast_type(at::kCPU) && !stores_bf16({x});
}

// Weights of a map that our kernels take for x: of larger ones LibTorch's products lose nothing on a device, nor on a
// CPU where they are by AVX-512. The other limit keeps the sums of a map's gradients, several tables of them
// (cpu/row_parts.h), below what a training step holds anyway.
[[nodiscard]] inline int64_t most_weights(const at::Tensor& x) {
  constexpr int64_t kMostOfCpu = int64_t{1} << 20;
  return x.is_cpu() && !blas_has_512() ? kMostOfCpu : kMostWeights;
}

}  // namespace xformer::kernels
