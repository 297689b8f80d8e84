// What lies between the projections runs in float32 at least, also under autocast (attention-core 0.7).
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/types.h>

namespace xformer::attention {

// Autocast is off during its life.
class FullPrecision {
 public:
  explicit FullPrecision(at::DeviceType device) : device_(device), enabled_(at::autocast::is_autocast_enabled(device)) {
    at::autocast::set_autocast_enabled(device_, false);
  }
  ~FullPrecision() { at::autocast::set_autocast_enabled(device_, enabled_); }
  FullPrecision(const FullPrecision&) = delete;
  FullPrecision& operator=(const FullPrecision&) = delete;

  // float32 for what came in 16 bits.
  [[nodiscard]] at::Tensor operator()(const at::Tensor& x) const {
    const at::ScalarType type = x.scalar_type();
    return type == at::kBFloat16 || type == at::kHalf ? x.to(at::kFloat) : x;
  }

 private:
  at::DeviceType device_;
  bool enabled_;
};

}  // namespace xformer::attention
