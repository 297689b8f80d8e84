// Of CUDA's runtime what the plugin's operators name, where launches are walked (walked_device.h).
#pragma once

enum cudaError_t { cudaSuccess };
using cudaStream_t = void*;
