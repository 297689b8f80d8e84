// What to tell of a machine on which CUDA finds no device. Knows nothing of CUDA's headers, so that every answer of a
// driver can be tested without one.
#pragma once

#include <string>

namespace xformer::cuda {

// What the CUDA runtime answered. Versions are its numbers (13020 is 13.2).
struct DeviceQuery {
  int count = 0;           // cudaGetDeviceCount
  int error = 0;           // its result, 0: none
  std::string error_text;  // cudaGetErrorString of it
  int driver = 0;          // cudaDriverGetVersion: the newest CUDA that the driver supports; 0: there is no driver
  int runtime = 0;         // cudaRuntimeGetVersion
};

// Why there is no device, or "" when there is one.
[[nodiscard]] std::string no_device_reason(const DeviceQuery& answer);

// 13020 -> "13.2"
[[nodiscard]] std::string version_text(int version);

}  // namespace xformer::cuda
