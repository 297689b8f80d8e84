// Who multiplies under autocast.
#pragma once

#include "kernels/fused.h"

namespace xformer::kernels {

// Whether products on x's device are LibTorch's now: on a CPU, under autocast to another type than ours.
[[nodiscard]] inline bool autocast_takes_products(const at::Tensor& x) {
  return x.is_cpu() && autocast_type(at::kCPU) && !stores_bf16({x});
}

}  // namespace xformer::kernels
