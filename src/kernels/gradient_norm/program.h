// The norm of all gradients (gradient_norm.h) as a device program: each block sums the squares of a share of them in
// double precision, and the last that is ready adds the sums, in their order, and decides. So the numbers are the same
// on every device, whichever block that is.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/device/thread.h"

namespace xformer::kernels {

inline constexpr int kNormThreads = 256;
inline constexpr int64_t kNormParts = 264;

struct GradientNormArguments {
  ElementType type = ElementType::kFloat;  // or double
  const void* gradients = nullptr;
  int64_t elements = 0;
  bool wide = false;  // the gradients are 16-byte aligned
  double* parts = nullptr;
  const float* loss_scale = nullptr;  // null: 1
  double clip = 0;
  double *norm = nullptr, *factor = nullptr, *skip = nullptr, *step = nullptr;
  int32_t* ready = nullptr;  // blocks; 0 between launches
};

[[nodiscard]] constexpr LaunchGrid norm_parts_grid(int64_t elements) {
  const int64_t at_once = int64_t{kNormThreads} * kRun;
  return {std::clamp<int64_t>((elements + at_once - 1) / at_once, 1, kNormParts), kNormThreads / kWarp * 8 + 8};
}

// The sum over a block's threads, in its first thread.
template <class Thread>
XFORMER_DEVICE double block_sum(const Thread& thread, double value, int threads) {
  auto* const sums = static_cast<double*>(thread.shared());
  value = lane_sum(thread, value, 1, kWarp);
  if (thread.index() % kWarp == 0) sums[thread.index() / kWarp] = value;
  thread.sync();
  double total = 0;
  if (thread.index() == 0)
    for (int i = 0; i < threads / kWarp; ++i) total += sums[i];
  return total;
}

template <class Value>
struct GradientNormProgram {
  static constexpr int kThreads = kNormThreads, kResident = 2;
  GradientNormArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const int64_t stride = thread.blocks() * kThreads * kRun;
    double sum = 0;
    for (int64_t i = (thread.block() * kThreads + thread.index()) * kRun; i < a.elements; i += stride) {
      const int count = run_length(a.elements - i);
      Value values[kRun];
      load_run(thread, static_cast<const Value*>(a.gradients) + i, count, a.wide, values);
      XFORMER_UNROLL
      for (int j = 0; j < kRun; ++j) sum += static_cast<double>(values[j]) * static_cast<double>(values[j]);
    }
    double total = block_sum(thread, sum, kThreads);
    auto* const last = reinterpret_cast<bool*>(static_cast<double*>(thread.shared()) + kThreads / kWarp);
    if (thread.index() == 0) {
      a.parts[thread.block()] = total;
      *last = thread.arrive(a.ready) == thread.blocks() - 1;
    }
    thread.sync();
    if (!*last) return;
    sum = 0;
    for (int64_t i = thread.index(); i < thread.blocks(); i += kThreads) sum += thread.arrived(a.parts + i);
    total = block_sum(thread, sum, kThreads);
    if (thread.index() == 0) decide(total);
  }

 private:
  XFORMER_DEVICE void decide(double total) const {
    *a.ready = 0;
    const double scale = a.loss_scale == nullptr ? 1 : 1 / static_cast<double>(*a.loss_scale);
    // Squares that their own type cannot hold would make moments that are not finite.
    const double norm = std::sqrt(static_cast<double>(static_cast<Value>(total))) * scale;
    const bool skip = !(norm <= 1.7976931348623157e308);  // infinite, or not a number
    *a.norm = norm;
    *a.skip = skip ? 1 : 0;
    *a.step += skip ? 0 : 1;
    const double clipped = a.clip / (norm + 1e-6);
    *a.factor = a.clip > 0 && !(clipped >= 1) ? scale * clipped : scale;
  }
};

template <class Launch>
auto run_gradient_norm(const GradientNormArguments& a, const Launch& launch) {
  const LaunchGrid grid = norm_parts_grid(a.elements);
  return a.type == ElementType::kDouble ? launch(grid, GradientNormProgram<double>{a})
                                        : launch(grid, GradientNormProgram<float>{a});
}

}  // namespace xformer::kernels
