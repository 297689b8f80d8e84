// While one lives, what at::empty gives is NaN, so that nothing goes unwritten.
#pragma once

#include <ATen/Context.h>

namespace xformer::kernels {

struct PoisonedMemory {
  PoisonedMemory() { set(true); }
  ~PoisonedMemory() { set(false); }
  static void set(bool on) {
    at::globalContext().setDeterministicAlgorithms(on, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(on);
  }
};

}  // namespace xformer::kernels
