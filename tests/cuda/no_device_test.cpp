// What is told of every answer that CUDA's runtime gives where no device can be used.
#include "cuda/no_device.h"

#include <catch2/catch.hpp>

namespace xformer::cuda {

TEST_CASE("CUDA's version numbers are told as people write them") {
  CHECK(version_text(13000) == "13.0");
  CHECK(version_text(13020) == "13.2");
  CHECK(version_text(12080) == "12.8");
  CHECK(version_text(9020) == "9.2");
}

TEST_CASE("no driver, one that is too old, another error and an empty list of devices are told apart") {
  constexpr int kInsufficientDriver = 35, kNoDevice = 100;
  const std::string insufficient = "CUDA driver version is insufficient for CUDA runtime version";
  const std::string none = "no NVIDIA driver is found (a container has one only if it was started with the GPU)";
  // The runtime calls a driver that is not there an old one, of version 0; where it cannot say, the number stays as is.
  CHECK(no_device_reason({0, kInsufficientDriver, insufficient, 0, 13000}) == none);
  CHECK(no_device_reason({0, kInsufficientDriver, insufficient, -1, 13000}) == none);
  CHECK(no_device_reason({0, kInsufficientDriver, insufficient, 12080, 13000}) ==
        "the driver supports CUDA up to 12.8, this program is made for 13.0: a newer driver is needed");
  // Whatever else went wrong, with the driver's version or without.
  for (const int driver : {0, 13000})
    CHECK(no_device_reason({0, kNoDevice, "no CUDA-capable device is detected", driver, 13000}) ==
          "no CUDA-capable device is detected");
  CHECK(no_device_reason({2, 802, "system not yet initialized", 13000, 13000}) == "system not yet initialized");
  CHECK(no_device_reason({0, 0, "no error", 13000, 13000}) == "the driver shows no device");
  CHECK(no_device_reason({1, 0, "no error", 13000, 13000}).empty());
  CHECK(no_device_reason({8, 0, "no error", 13020, 13000}).empty());
}

}  // namespace xformer::cuda
