#pragma once

namespace c10::cuda {
using CUDAGuard = c10::DeviceGuard;
}
