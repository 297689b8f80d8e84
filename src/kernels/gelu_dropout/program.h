// Activation and dropout (gelu_dropout.h) as a device program: every thread takes the kRun elements about which one
// Philox block decides.
#pragma once

#include <cmath>

#include "kernels/device/thread.h"

namespace xformer::kernels {

inline constexpr int kGeluThreads = 256;

// gelu(x) = x share(x); its slope is share + x times the share's own slope.
template <class Math>
struct DeviceGelu {
  Math value, slope;

  XFORMER_DEVICE DeviceGelu(Math x, bool tanh) {
    Math share, density;
    if (tanh) {  // (1 + tanh(u)) / 2 is the logistic function of 2 u
      constexpr auto kFactor = static_cast<Math>(1.59576912160573071176), kCubic = static_cast<Math>(0.044715);
      share = 1 / (1 + std::exp(-kFactor * (x + kCubic * x * x * x)));
      density = share * (1 - share) * kFactor * (1 + 3 * kCubic * x * x);
    } else {
      share = (1 + std::erf(x * static_cast<Math>(0.70710678118654752440))) / 2;
      density = static_cast<Math>(0.39894228040143267794) * std::exp(x * x / -2);
    }
    value = x * share;
    slope = share + x * density;
  }
};

struct GeluDropoutArguments {
  ElementType type = ElementType::kFloat;
  const void *x = nullptr, *gradient = nullptr;  // without gaps; the second is null forwards
  void* out = nullptr;                           // drop(gelu(x)), or the gradient of x
  int64_t elements = 0;
  bool tanh = false;
  bool wide = false;  // all begins at sixteen bytes
  DeviceDrop drop;
};

[[nodiscard]] constexpr LaunchGrid gelu_grid(int64_t elements) {
  const int64_t at_once = int64_t{kGeluThreads} * kRun;
  return {(elements + at_once - 1) / at_once, 0};
}

template <class Value>
struct GeluDropoutProgram {
  static constexpr int kThreads = kGeluThreads, kResident = 2;
  GeluDropoutArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    using Math = typename Arithmetic<Value>::Type;
    const int64_t first = (thread.block() * kThreads + thread.index()) * kRun, left = a.elements - first;
    if (left <= 0) return;
    const int count = run_length(left);
    Math x[kRun], result[kRun];
    load_run(thread, static_cast<const Value*>(a.x) + first, count, a.wide, x);
    if (a.gradient != nullptr) load_run(thread, static_cast<const Value*>(a.gradient) + first, count, a.wide, result);
    XFORMER_UNROLL
    for (int i = 0; i < kRun; ++i) {
      const DeviceGelu<Math> gelu(x[i], a.tanh);
      result[i] = a.gradient == nullptr ? gelu.value : result[i] * gelu.slope;
    }
    DeviceDraws(a.drop).apply(first, result);
    store_run(thread, result, count, a.wide, static_cast<Value*>(a.out) + first);
  }
};

// launch(grid, program) with the type of these arguments. `Types` has what a device calls Half and BFloat16.
template <class Types, class Launch>
auto run_gelu(const GeluDropoutArguments& a, const Launch& launch) {
  const LaunchGrid grid = gelu_grid(a.elements);
  if (a.type == ElementType::kDouble) return launch(grid, GeluDropoutProgram<double>{a});
  return with_element<Types>(a.type, [&]<class Value>(Value) { return launch(grid, GeluDropoutProgram<Value>{a}); });
}

}  // namespace xformer::kernels
