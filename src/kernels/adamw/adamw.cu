// AdamW on a CUDA device. No LibTorch here.
#include "kernels/adamw/cuda.h"
#include "kernels/device/launch.cuh"

namespace xformer::kernels {

cudaError_t launch_adamw(const AdamWArguments& a, cudaStream_t stream) {
  return choose_program(a,
                        [&](const auto& program) { return launch_program(adamw_grid(a.elements), program, stream); });
}

}  // namespace xformer::kernels
