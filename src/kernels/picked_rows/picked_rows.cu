// Rows by a table of places on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/picked_rows/cuda.h"

namespace xformer::kernels {

cudaError_t launch_moved_rows(const MovedRowsArguments& a, cudaStream_t stream) {
  return run_moved_rows<CudaTypes>(a, launched_on(stream));
}

}  // namespace xformer::kernels
