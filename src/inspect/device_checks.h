// What a device must show before its numbers are believed: every attention against double precision on the CPU, and a
// recorded step against a plain one.
#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

#include "inspect/selftest.h"
#include "training/replay.h"

namespace xformer::inspect {

// A name's mixer that is held against float64.
struct DoubleCheck {
  std::string name;
  double tolerance = 0;  // largest difference over the largest value
  bool causal = false, tf32 = false;
  std::optional<at::ScalarType> products = std::nullopt;  // by autocast
};

// What there is to check on a device: every name in float32, causal too where there is such a form; some in bf16, and,
// but on a CPU, in fp16 and with products in TF32.
[[nodiscard]] std::vector<DoubleCheck> double_checks(const at::Device& device);
// Output and gradients (of the input and of every parameter) on the device and in float64 on the CPU, on ragged
// lengths. The detail is the largest difference over the largest value.
[[nodiscard]] SelftestItem check_against_double(const DoubleCheck& check, const at::Device& device);

// Recordings that come and go by turns with one that fails because it reads a value back (on a CPU nothing refuses
// that), after which LibTorch's generator still draws plainly.
[[nodiscard]] SelftestItem check_lives_of_recordings(const at::Device& device, const training::Recorder& recorder);

// For every name, in each of these precisions of recorded_precisions() (on a CPU softmax alone in 16 bits), with
// dropout, two lengths, micro-batches and a skipped step: losses of every step and final weights of recorded steps
// equal those of plain ones in every bit, and nothing falls back.
void check_recorded_steps(const at::Device& device, const training::Recorder& recorder,
                          const std::vector<std::string>& precisions, const SelftestListener& tell);

}  // namespace xformer::inspect
