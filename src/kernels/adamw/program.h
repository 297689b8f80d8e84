// AdamW (adamw.h) as a device program: every thread takes runs of elements, after one of each block has made of the
// step's scalars what all elements share.
#pragma once

#include <algorithm>

#include "kernels/adamw/factors.h"

namespace xformer::kernels {

struct AdamWArguments {
  ElementType type = ElementType::kFloat;  // or double
  void *x = nullptr, *m = nullptr, *v = nullptr;
  const void* gradient = nullptr;
  const double *learning_rate = nullptr, *beta1 = nullptr, *factor = nullptr, *step = nullptr, *skip = nullptr;
  double beta2 = 0, epsilon = 0, weight_decay = 0;
  bool rectified = false;
  int64_t elements = 0, decayed = 0;  // the second: of those in front, which decay
  bool wide = false;                  // the buffers are 16-byte aligned
};

inline constexpr int kUpdateThreads = 256;

[[nodiscard]] constexpr LaunchGrid adamw_grid(int64_t elements) {
  const int64_t at_once = int64_t{kUpdateThreads} * kRun;
  return {std::min<int64_t>((elements + at_once - 1) / at_once, int64_t{1} << 16), sizeof(AdamWFactors)};
}

template <class Value>
struct AdamWProgram {
  static constexpr int kThreads = kUpdateThreads, kResident = 2;
  AdamWArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    if (*a.skip != 0) return;
    auto* const shared = static_cast<AdamWFactors*>(thread.shared());
    if (thread.index() == 0)
      *shared = adamw_factors(*a.learning_rate, *a.beta1, a.beta2, a.epsilon, a.weight_decay, a.rectified, *a.factor,
                              *a.step);
    thread.sync();
    const AdamWFactors f = *shared;
    const Value factor = static_cast<Value>(f.gradient), b1 = static_cast<Value>(f.first_keep);
    const Value a1 = static_cast<Value>(f.first_add), b2 = static_cast<Value>(f.second_keep);
    const Value a2 = static_cast<Value>(f.second_add), decay = static_cast<Value>(f.decay);
    const Value rate = static_cast<Value>(f.rate), root = static_cast<Value>(f.second_root);
    const Value epsilon = static_cast<Value>(f.epsilon);
    const int64_t stride = thread.blocks() * kThreads * kRun;
    for (int64_t i = (thread.block() * kThreads + thread.index()) * kRun; i < a.elements; i += stride) {
      const int count = run_length(a.elements - i);
      Value gradient[kRun], x[kRun], m[kRun], v[kRun];
      load_run(thread, static_cast<const Value*>(a.gradient) + i, count, a.wide, gradient);
      load_run(thread, static_cast<const Value*>(a.x) + i, count, a.wide, x);
      load_run(thread, static_cast<const Value*>(a.m) + i, count, a.wide, m);
      load_run(thread, static_cast<const Value*>(a.v) + i, count, a.wide, v);
      XFORMER_UNROLL
      for (int j = 0; j < kRun; ++j) {
        const Value g = gradient[j] * factor;
        m[j] = b1 * m[j] + a1 * g;
        v[j] = b2 * v[j] + a2 * g * g;
        x[j] = (i + j < a.decayed ? decay : Value(1)) * x[j] - rate * m[j] / (std::sqrt(v[j]) * root + epsilon);
      }
      store_run(thread, x, count, a.wide, static_cast<Value*>(a.x) + i);
      store_run(thread, m, count, a.wide, static_cast<Value*>(a.m) + i);
      store_run(thread, v, count, a.wide, static_cast<Value*>(a.v) + i);
    }
  }
};

template <class Launch>
auto choose_program(const AdamWArguments& a, const Launch& launch) {
  return a.type == ElementType::kDouble ? launch(AdamWProgram<double>{a}) : launch(AdamWProgram<float>{a});
}

}  // namespace xformer::kernels
