// Cross entropy on a CUDA device. No LibTorch here.
#include "kernels/cross_entropy/cuda.h"
#include "kernels/device/launch.cuh"

namespace xformer::kernels {

cudaError_t launch_cross_entropy(const CrossEntropyArguments& a, cudaStream_t stream) {
  return launch_program(kCrossEntropyGrid, CrossEntropyProgram{a}, stream);
}

}  // namespace xformer::kernels
