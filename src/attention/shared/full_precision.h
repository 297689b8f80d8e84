// What lies between the projections runs in float32 at least, also under autocast (attention-core 0.7).
#pragma once

#include "tensor/autocast.h"

namespace xformer::attention {

// Autocast is off during its life.
struct FullPrecision : AutocastScope {
  explicit FullPrecision(c10::DeviceType device) : AutocastScope(device, std::nullopt) {}

  // float32 for what came in 16 bits.
  [[nodiscard]] at::Tensor operator()(const at::Tensor& x) const {
    const at::ScalarType type = x.scalar_type();
    return type == at::kBFloat16 || type == at::kHalf ? x.to(at::kFloat) : x;
  }
};

}  // namespace xformer::attention
