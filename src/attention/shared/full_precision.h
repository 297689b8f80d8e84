// What lies between the projections runs in float32 at least, also under autocast (attention-core 0.7).
#pragma once

#include "kernels/fused.h"
#include "tensor/autocast.h"

namespace xformer::attention {

// Autocast is off during its life.
class FullPrecision : public AutocastScope {
 public:
  // `takes_bf16`: bf16 stays as it is where our kernels run on a CPU, for what hands it to nothing else; they compute
  // all but products in float. `takes_half_on_devices`: 16 bits stay as they are on another device.
  explicit FullPrecision(c10::DeviceType device, bool takes_bf16 = false, bool takes_half_on_devices = false)
      : AutocastScope(device, std::nullopt), takes_bf16_(takes_bf16), takes_half_on_devices_(takes_half_on_devices) {}

  // float32 for what came in 16 bits.
  [[nodiscard]] at::Tensor operator()(const at::Tensor& x) const {
    const at::ScalarType type = x.scalar_type();
    if (!x.is_cpu() && takes_half_on_devices_) return x;
    if (type == at::kBFloat16 && takes_bf16_ && kernels::stores_bf16({x})) return x;
    return kernels::in_float(x);
  }

 private:
  bool takes_bf16_, takes_half_on_devices_;
};

}  // namespace xformer::attention
