// A classifier on a CUDA device. No LibTorch here.
#include "kernels/classifier/cuda.h"
#include "kernels/device/launch.cuh"

namespace xformer::kernels {

cudaError_t launch_classifier_forward(const ClassifierArguments& a, cudaStream_t stream) {
  return run_classifier(a, /*backward=*/false, launched_on(stream));
}

cudaError_t launch_classifier_backward(const ClassifierArguments& a, cudaStream_t stream) {
  return run_classifier(a, /*backward=*/true, launched_on(stream));
}

}  // namespace xformer::kernels
