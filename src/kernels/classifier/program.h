// Maps with ReLU between them (classifier.h) as a device program each way: a block takes a row through all of them. A
// row's numbers lie in the block's own memory, and weights come by way of the cache that the blocks share; there is too
// little to multiply for tiles. The weights' gradients are another launch (linear/weight_gradients.h).
#pragma once

#include "kernels/device/thread.h"

namespace xformer::kernels {

inline constexpr int kClassifierThreads = 256;
inline constexpr int kMostClassifierMaps = 3;
inline constexpr int64_t kWidestClassifier = 2048, kMostClassifierRows = 4096;

struct ClassifierArguments {
  struct Map {
    const float *weight = nullptr, *bias = nullptr;  // [out, in], [out]
    float* made = nullptr;  // [rows, out]: the scores of the last, of others what is behind ReLU
    float* slope =
        nullptr;  // [rows, out]: the gradient of what the map makes; of the last it comes, others are written
    int out = 0;
  };

  const float* x = nullptr;  // [rows, in]
  float* dx = nullptr;       // [rows, in], written backwards; null: not wanted
  int64_t rows = 0;
  int in = 0, count = 0, widest = 0;
  Map maps[kMostClassifierMaps];
};

// A block for each row, with room for two rows of the widest.
[[nodiscard]] constexpr LaunchGrid classifier_grid(int64_t rows, int64_t widest) { return {rows, 2 * widest * 4}; }

struct ClassifierForwardProgram {
  static constexpr int kThreads = kClassifierThreads, kResident = 4;
  ClassifierArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    auto* from = static_cast<float*>(thread.shared());
    float* to = from + a.widest;
    const int64_t row = thread.block();
    for (int i = thread.index(); i < a.in; i += kThreads) from[i] = a.x[row * a.in + i];
    int width = a.in;
    for (int which = 0; which < a.count; ++which) {
      thread.sync();
      const ClassifierArguments::Map& map = a.maps[which];
      const bool last = which + 1 == a.count;
      // A warp for each number, its lanes beside each other over the row.
      for (int out = thread.index() / kWarp; out < map.out; out += kThreads / kWarp) {
        float sum = 0;
        for (int i = thread.index() % kWarp; i < width; i += kWarp)
          sum += map.weight[int64_t{out} * width + i] * from[i];
        sum = lane_sum(thread, sum, 1, kWarp) + map.bias[out];
        if (thread.index() % kWarp == 0) to[out] = !last && sum <= 0 ? 0.0f : sum;
      }
      thread.sync();
      for (int out = thread.index(); out < map.out; out += kThreads) map.made[row * map.out + out] = to[out];
      float* const other = from;
      from = to, to = other, width = map.out;
    }
  }
};

struct ClassifierBackwardProgram {
  static constexpr int kThreads = kClassifierThreads, kResident = 4;
  ClassifierArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    auto* from = static_cast<float*>(thread.shared());
    float* to = from + a.widest;
    const int64_t row = thread.block();
    const ClassifierArguments::Map& scores = a.maps[a.count - 1];
    for (int i = thread.index(); i < scores.out; i += kThreads) from[i] = scores.slope[row * scores.out + i];
    for (int which = a.count - 1; which >= (a.dx == nullptr ? 1 : 0); --which) {
      thread.sync();
      const ClassifierArguments::Map& map = a.maps[which];
      const int width = which == 0 ? a.in : a.maps[which - 1].out;
      for (int i = thread.index(); i < width; i += kThreads) {  // neighbouring threads read neighbours
        float sum = 0;
        for (int out = 0; out < map.out; ++out) sum += from[out] * map.weight[int64_t{out} * width + i];
        if (which == 0) {
          a.dx[row * width + i] = sum;
          continue;
        }
        const ClassifierArguments::Map& before = a.maps[which - 1];
        if (before.made[row * width + i] <= 0) sum = 0;
        before.slope[row * width + i] = to[i] = sum;
      }
      float* const other = from;
      from = to, to = other;
    }
  }
};

// launch(grid, program) for either pass.
template <class Launch>
auto run_classifier(const ClassifierArguments& a, bool backward, const Launch& launch) {
  const LaunchGrid grid = classifier_grid(a.rows, a.widest);
  return backward ? launch(grid, ClassifierBackwardProgram{a}) : launch(grid, ClassifierForwardProgram{a});
}

}  // namespace xformer::kernels
