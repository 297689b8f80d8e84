// From tensors to a launch on their device's stream (part of the plugin).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace xformer::kernels {

// A function of a launch's arguments that makes it on the device of `x`, on the stream that is current there.
template <class Arguments>
auto cuda_launch(const at::Tensor& x, cudaError_t (*launch)(const Arguments& arguments, cudaStream_t stream)) {
  return [device = x.device(), launch](const Arguments& arguments) {
    const c10::cuda::CUDAGuard guard(device);
    C10_CUDA_CHECK(launch(arguments, c10::cuda::getCurrentCUDAStream()));
  };
}

// Likewise, of a launch that is told of two things.
template <class First, class Second>
auto cuda_launch(const at::Tensor& x, cudaError_t (*launch)(const First&, const Second&, cudaStream_t stream)) {
  return [device = x.device(), launch](const First& first, const Second& second) {
    const c10::cuda::CUDAGuard guard(device);
    C10_CUDA_CHECK(launch(first, second, c10::cuda::getCurrentCUDAStream()));
  };
}

}  // namespace xformer::kernels
