// Autocast as a scope: LibTorch runs matrix products of float32 tensors in a type of 16 bits while it is on.
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/types.h>

#include <optional>

namespace xformer {

// The type that products on such a device run in now; none: that of their operands.
[[nodiscard]] inline std::optional<at::ScalarType> autocast_type(c10::DeviceType device) {
  if (!at::autocast::is_autocast_available(device) || !at::autocast::is_autocast_enabled(device)) return std::nullopt;
  return at::autocast::get_autocast_dtype(device);
}

// Autocast to a type, or none at all, during its life. Afterwards it is as it was, whatever was thrown.
class AutocastScope {
 public:
  AutocastScope(c10::DeviceType device, std::optional<at::ScalarType> type)
      : device_(device),
        enabled_before_(at::autocast::is_autocast_enabled(device)),
        type_before_(at::autocast::get_autocast_dtype(device)) {
    if (type) at::autocast::set_autocast_dtype(device_, *type);
    at::autocast::set_autocast_enabled(device_, type.has_value());
    at::autocast::increment_nesting();
  }
  ~AutocastScope() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, enabled_before_);
    at::autocast::set_autocast_dtype(device_, type_before_);
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  c10::DeviceType device_;
  bool enabled_before_;
  at::ScalarType type_before_;
};

}  // namespace xformer
