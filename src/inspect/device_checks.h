// What a device must show before its numbers are believed: every attention against double precision on the CPU, and a
// recorded step against a plain one.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "inspect/selftest.h"
#include "training/replay.h"

namespace xformer::inspect {

// Output and gradients (of the input and of every parameter) of every name's mixer, in float32 on the device and
// float64 on the CPU, on ragged lengths. The detail is the largest difference over the largest value.
[[nodiscard]] std::vector<SelftestItem> check_against_double(const at::Device& device);

// For every name, in fp32, bf16 and fp16 (on a CPU softmax alone in the last two), with dropout, two lengths,
// micro-batches and a skipped step: losses of every step and final weights of recorded steps equal those of plain ones
// in every bit, and nothing falls back.
[[nodiscard]] std::vector<SelftestItem> check_recorded_steps(const at::Device& device,
                                                             const training::Recorder& recorder);

}  // namespace xformer::inspect
