// Hashed attention on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/hashed_attention/cuda.h"
#include "kernels/hashed_attention/gradient_programs.h"

namespace xformer::kernels {

namespace {

cudaError_t launch_hashed_pass(const HashedArguments& a, bool backward, cudaStream_t stream) {
  return launch_all(stream, [&](const auto& launch) { run_hashed_attention(a, backward, launch); });
}

}  // namespace

cudaError_t launch_hash_buckets(const HashBucketArguments& a, cudaStream_t stream) {
  return launch_program(HashBucketsProgram::grid(a), HashBucketsProgram{a}, stream);
}

cudaError_t launch_hashed_attention_forward(const HashedArguments& a, cudaStream_t stream) {
  return launch_hashed_pass(a, /*backward=*/false, stream);
}

cudaError_t launch_hashed_attention_backward(const HashedArguments& a, cudaStream_t stream) {
  return launch_hashed_pass(a, /*backward=*/true, stream);
}

}  // namespace xformer::kernels
