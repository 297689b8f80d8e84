// Linear maps with residual and norm on a CUDA device. No LibTorch here.
#include "kernels/branch/cuda.h"
#include "kernels/device/launch.cuh"

namespace xformer::kernels {

cudaError_t launch_linear_branch(const LinearBranchArguments& a, cudaStream_t stream) {
  return run_linear_branch<CudaTypes>(a, launched_on(stream));
}

}  // namespace xformer::kernels
