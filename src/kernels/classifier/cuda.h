// The launches of a classifier on a CUDA device, between host code that knows LibTorch and device code that does not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/classifier/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_classifier_forward(const ClassifierArguments& a, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_classifier_backward(const ClassifierArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
