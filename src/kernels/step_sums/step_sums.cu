// A step's sums on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/step_sums/cuda.h"

namespace xformer::kernels {

cudaError_t launch_step_sums(const StepSumsArguments& a, cudaStream_t stream) {
  return launch_program(kStepSumsGrid, StepSumsProgram{a}, stream);
}

}  // namespace xformer::kernels
