#include "cuda/no_device.h"

#include <fmt/format.h>

namespace xformer::cuda {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string no_device_reason(const DeviceQuery& answer) {
  constexpr int kInsufficientDriver = 35;  // also where there is none
  if (answer.error == kInsufficientDriver && answer.driver <= 0)
    return "no NVIDIA driver is found (a container has one only if it was started with the GPU)";
  if (answer.error == kInsufficientDriver)
    return fmt::format("the driver supports CUDA up to {}, this program is made for {}: a newer driver is needed",
                       version_text(answer.driver), version_text(answer.runtime));
  if (answer.error != 0) return answer.error_text;
  return answer.count > 0 ? "" : "the driver shows no device";
}

}  // namespace xformer::cuda
