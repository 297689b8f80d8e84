// Where tensors live, how many threads compute, and what the machine is.
#pragma once

#include <torch/types.h>

#include <optional>
#include <string>

#include "core/json.h"
#include "tensor/memory.h"

namespace xformer {

// That this process may run on.
[[nodiscard]] int64_t usable_processors();
// Of $OMP_NUM_THREADS, where it holds a number from 1 (the first of a list); 0 otherwise.
[[nodiscard]] int64_t threads_of_environment();

struct FoundDevice {
  at::Device device = at::kCPU;
  std::string note;  // why `auto` passed over a GPU that seems to be there; "" mostly
};

// The words "auto", "cpu", "cuda" and "cuda:N"; UserError otherwise. Touches no device.
void check_device_name(const std::string& name);
// ResourceError where a CUDA device of that name is not there; takes none of it.
void require_device(const std::string& name);
// The device, made the calling thread's. `auto` takes the first CUDA device where there is one, else the CPU.
// ResourceError that says what is missing when a CUDA device was asked for and cannot be had.
[[nodiscard]] FoundDevice find_device(const std::string& name);

struct ComputeOptions {
  int64_t threads = 0;  // 0: $OMP_NUM_THREADS, else one per processor this process may use
  bool deterministic = true;
};
// Sets LibTorch's threads and determinism for the process. Call before the first operator runs on a device.
void configure_compute(const ComputeOptions& options);

// Tensor memory of the device: the counting allocator's on the CPU, LibTorch's caching allocator's on CUDA.
[[nodiscard]] MemoryUse device_memory(const at::Device& device);
void reset_device_peak(const at::Device& device);
void release_device_memory(const at::Device& device);
// What could still be taken: of the system and this process's control group on the CPU, of the device on CUDA.
[[nodiscard]] int64_t available_memory(const at::Device& device);
// Waits until the device has done what was asked of it; nothing to wait for on the CPU.
void synchronize(const at::Device& device);
// Keeps a CUDA device from what it is asked for from now on, for about so long, so that it finds all of that in its
// queue; nothing elsewhere.
void hold(const at::Device& device, double seconds);
// Joules the device has used since some fixed moment; nullopt where no counter tells.
[[nodiscard]] std::optional<double> device_energy(const at::Device& device);

// {"libtorch": "2.11.0", "compiler": ..., "xformer": ..., "commit": ..., "dirty": false} and the machine's facts.
[[nodiscard]] Json software_facts();
[[nodiscard]] Json hardware_facts(const at::Device& device);

}  // namespace xformer
