// Dropout (dropout.h) as a device program: every thread takes the kRun elements about which one Philox block decides.
#pragma once

#include "kernels/device/thread.h"

namespace xformer::kernels {

inline constexpr int kDropoutThreads = 256;

struct DropoutArguments {
  ElementType type = ElementType::kFloat;
  const void* x = nullptr;  // without gaps, as the result
  void* out = nullptr;
  int64_t elements = 0;
  bool wide = false;  // both begin at sixteen bytes
  DeviceDrop drop;
};

[[nodiscard]] constexpr LaunchGrid dropout_grid(int64_t elements) {
  const int64_t at_once = int64_t{kDropoutThreads} * kRun;
  return {(elements + at_once - 1) / at_once, 0};
}

template <class Value>
struct DropoutProgram {
  static constexpr int kThreads = kDropoutThreads, kResident = 4;
  DropoutArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const int64_t first = (thread.block() * kThreads + thread.index()) * kRun, left = a.elements - first;
    if (left <= 0) return;
    const int count = run_length(left);
    typename Arithmetic<Value>::Type x[kRun];
    load_run(thread, static_cast<const Value*>(a.x) + first, count, a.wide, x);
    DeviceDraws(a.drop).apply(first, x);
    store_run(thread, x, count, a.wide, static_cast<Value*>(a.out) + first);
  }
};

// launch(grid, program) with the type of these arguments. `Types` has what a device calls Half and BFloat16.
template <class Types, class Launch>
auto run_dropout(const DropoutArguments& a, const Launch& launch) {
  const LaunchGrid grid = dropout_grid(a.elements);
  if (a.type == ElementType::kDouble) return launch(grid, DropoutProgram<double>{a});
  return with_element<Types>(a.type, [&]<class Value>(Value) { return launch(grid, DropoutProgram<Value>{a}); });
}

}  // namespace xformer::kernels
