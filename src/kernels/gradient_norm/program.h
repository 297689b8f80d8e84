// The norm of all gradients (gradient_norm.h) as two device programs: each block sums the squares of a share of them in
// double precision, then one block adds the sums and decides. The order is the same on every device.
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
  int64_t part_count = 0;
  const float* loss_scale = nullptr;  // null: 1
  double clip = 0;
  double *norm = nullptr, *factor = nullptr, *skip = nullptr, *step = nullptr;
};

[[nodiscard]] constexpr LaunchGrid norm_parts_grid(int64_t elements) {
  const int64_t at_once = int64_t{kNormThreads} * kRun;
  return {std::clamp<int64_t>((elements + at_once - 1) / at_once, 1, kNormParts), kNormThreads / kWarp * 8};
}
inline constexpr LaunchGrid kNormEndGrid{1, kNormThreads / kWarp * 8};

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
struct GradientNormPartsProgram {
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
    const double total = block_sum(thread, sum, kThreads);
    if (thread.index() == 0) a.parts[thread.block()] = total;
  }
};

template <class Value>
struct GradientNormEndProgram {
  static constexpr int kThreads = kNormThreads, kResident = 2;
  GradientNormArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    double sum = 0;
    for (int64_t i = thread.index(); i < a.part_count; i += kThreads) sum += a.parts[i];
    const double total = block_sum(thread, sum, kThreads);
    if (thread.index() != 0) return;
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

// launch(grid, program) twice, one behind the other.
template <class Launch>
void run_programs(const GradientNormArguments& a, const Launch& launch) {
  const auto both = [&]<class Value>(Value) {
    launch(norm_parts_grid(a.elements), GradientNormPartsProgram<Value>{a});
    launch(kNormEndGrid, GradientNormEndProgram<Value>{a});
  };
  if (a.type == ElementType::kDouble) both(double());
  else both(float());
}

}  // namespace xformer::kernels
