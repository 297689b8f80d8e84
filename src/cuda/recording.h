// CUDA graphs behind the interface of tensor/cuda_backend.h.
#pragma once

#include "tensor/cuda_backend.h"

namespace xformer::cuda {

[[nodiscard]] std::unique_ptr<Recording> record(const std::function<void()>& work);

// Gives back what LibTorch's allocators of device and pinned memory keep unused.
void release_unused_memory();

}  // namespace xformer::cuda
