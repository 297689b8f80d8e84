// Who multiplies under autocast.
#pragma once

#include "kernels/fused.h"

namespace xformer::kernels {

// Whether products on x's device are LibTorch's now: under autocast to another type than ours.
[[nodiscard]] inline bool autocast_takes_products(const at::Tensor& x) {
  const c10::DeviceType device = x.device().type();
  return at::autocast::is_autocast_available(device) && autocast_type(device) && !stores_bf16({x});
}

}  // namespace xformer::kernels
