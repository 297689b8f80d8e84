// What the plugin names of this header of LibTorch, where launches are walked (device/walked_device.h).
#pragma once

#define C10_CUDA_CHECK(error) TORCH_CHECK((error) == cudaSuccess, "a walk does not fail")
