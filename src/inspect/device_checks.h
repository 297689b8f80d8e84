// What a device must show before its numbers are believed: every attention against double precision on the CPU, and a
// recorded step against a plain one.
#pragma once

#include <torch/types.h>

#include "inspect/selftest.h"
#include "training/replay.h"

namespace xformer::inspect {

// Output and gradients (of the input and of every parameter) of every name's mixer, in float32 on the device and
// float64 on the CPU, on ragged lengths; of softmax-fused in bf16 too, and in fp16 but on a CPU. The detail is the
// largest difference over the largest value.
void check_against_double(const at::Device& device, const SelftestListener& tell);

// Recordings that come and go by turns with one that fails because it reads a value back (on a CPU nothing refuses
// that), after which LibTorch's generator still draws plainly.
[[nodiscard]] SelftestItem check_lives_of_recordings(const at::Device& device, const training::Recorder& recorder);

// For every name, in fp32, then in bf16 and fp16 (on a CPU softmax alone in these two), with dropout, two lengths,
// micro-batches and a skipped step: losses of every step and final weights of recorded steps equal those of plain ones
// in every bit, and nothing falls back.
void check_recorded_steps(const at::Device& device, const training::Recorder& recorder, const SelftestListener& tell);

}  // namespace xformer::inspect
