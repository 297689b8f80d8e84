// The launches of the embedding on a CUDA device, between host code that knows LibTorch and device code that does not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/embedding/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_embedding(const EmbeddingArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
