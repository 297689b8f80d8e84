// The launches of hashed attention on a CUDA device, between host code that knows LibTorch and device code that does
// not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/hashed_attention/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_hash_buckets(const HashBucketArguments& a, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_hashed_attention_forward(const HashedArguments& a, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_hashed_attention_backward(const HashedArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
