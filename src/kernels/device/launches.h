// The launches of a pass, by the launch_program() of launch.cuh, or of what stands for it where programs are walked.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/device/thread.h"

namespace xformer::kernels {

// As what chooses a program wants a launch.
[[nodiscard]] inline auto launched_on(cudaStream_t stream) {
  return [stream](const LaunchGrid& grid, const auto& program) { return launch_program(grid, program, stream); };
}

// pass(launch) launches one program after the other; behind the first that is refused, none. Returns its error.
template <class Pass>
[[nodiscard]] cudaError_t launch_all(cudaStream_t stream, const Pass& pass) {
  cudaError_t error = cudaSuccess;
  pass([&](const LaunchGrid& grid, const auto& program) {
    if (error == cudaSuccess) error = launch_program(grid, program, stream);
  });
  return error;
}

}  // namespace xformer::kernels
