// Stands for src/kernels/device/launch.cuh where the plugin's sources are compiled for the CPU: programs are walked.
#pragma once

#include <cuda_runtime_api.h>

#include <typeinfo>

#include "device/walked_device.h"
#include "kernels/block_walk.h"
#include "kernels/device/launches.h"

namespace xformer::kernels {

using CudaTypes = WalkedTypes;

template <class Program>
[[nodiscard]] cudaError_t launch_program(const LaunchGrid& grid, const Program& program, cudaStream_t) {
  count_launch();
  note_plan({typeid(Program).name(), Program::kThreads, Program::kResident, grid.shared_bytes});
  if (const std::optional<WalkOrder> order = walk_order()) walk(grid, program, *order);
  return cudaSuccess;
}

}  // namespace xformer::kernels
