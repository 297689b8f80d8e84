// Where tensors live, how many threads compute, and what the machine is.
#pragma once

#include <torch/types.h>

#include <string>

#include "core/json.h"

namespace xformer {

// "auto", "cpu" or "cuda". ResourceError that says what is missing when a CUDA device was asked for and cannot be had.
[[nodiscard]] at::Device find_device(const std::string& name);

struct ComputeOptions {
  int64_t threads = 0;  // 0: one per processor this process may use
  bool deterministic = true;
};
// Sets LibTorch's threads and determinism for the process.
void configure_compute(const ComputeOptions& options);

// {"libtorch": "2.11.0", "compiler": ..., "xformer": ..., "commit": ..., "dirty": false} and the machine's facts.
[[nodiscard]] Json software_facts();
[[nodiscard]] Json hardware_facts(const at::Device& device);

}  // namespace xformer
