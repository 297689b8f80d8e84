// The launch of dropout on a CUDA device, between host code that knows LibTorch and device code that does not.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace xformer::kernels {

enum class DropoutType { kFloat, kDouble, kHalf, kBFloat16 };

struct DropoutLaunch {
  DropoutType type;
  const void* x;  // contiguous, at least 16-byte aligned
  void* y;
  int64_t elements, row_elements;  // of the tensor, of one of its rows
  uint32_t threshold;
  const int64_t* state;  // device memory: key, step, first row
  int64_t site;
  cudaStream_t stream;
};

[[nodiscard]] cudaError_t launch_dropout(const DropoutLaunch& call);

}  // namespace xformer::kernels
