// Cross entropy (cross_entropy.h) as a device program of one block: a warp for each row in turn, its lanes beside each
// other over the classes. Rows are added up in one order, in double precision.
#pragma once

#include <cmath>

#include "kernels/device/thread.h"

namespace xformer::kernels {

inline constexpr int kCrossEntropyThreads = 512, kCrossEntropyWarps = kCrossEntropyThreads / kWarp;
// Of scores: with more of them one block is slower than many.
inline constexpr int64_t kMostClassScores = 65536;

struct CrossEntropyArguments {
  const float* scores = nullptr;  // [b,c] without gaps
  const int64_t* labels = nullptr;
  const float* row_valid = nullptr;
  int64_t b = 0, c = 0;
  float smoothing = 0;
  float *loss = nullptr, *gradient = nullptr;
  double* right = nullptr;
};

inline constexpr LaunchGrid kCrossEntropyGrid{1, 2 * kCrossEntropyWarps * 8};

struct CrossEntropyProgram {
  static constexpr int kThreads = kCrossEntropyThreads, kResident = 1;
  CrossEntropyArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const int warp = thread.index() / kWarp, lane = thread.index() % kWarp;
    double loss = 0, right = 0;
    for (int64_t row = warp; row < a.b; row += kCrossEntropyWarps) take_row(thread, row, lane, loss, right);
    auto* const sums = static_cast<double*>(thread.shared());
    if (lane == 0) sums[warp] = loss, sums[kCrossEntropyWarps + warp] = right;
    thread.sync();
    if (thread.index() != 0) return;
    for (int i = 1; i < kCrossEntropyWarps; ++i) loss += sums[i], right += sums[kCrossEntropyWarps + i];
    *a.loss = static_cast<float>(loss);
    *a.right = right;
  }

 private:
  template <class Thread>
  XFORMER_DEVICE void take_row(const Thread& thread, int64_t row, int lane, double& loss, double& right) const {
    const float* const x = a.scores + row * a.c;
    float* const gradient = a.gradient + row * a.c;
    if (!(a.row_valid[row] > 0)) {
      for (int64_t j = lane; j < a.c; j += kWarp) gradient[j] = 0;
      return;
    }
    // The highest score and its class.
    float most = -INFINITY;
    auto best = static_cast<int32_t>(a.c);
    for (int64_t j = lane; j < a.c; j += kWarp)
      if (x[j] > most || best == a.c) most = x[j], best = static_cast<int32_t>(j);
    XFORMER_UNROLL
    for (int mask = 1; mask < kWarp; mask *= 2) {
      const float other = thread.shuffle_xor(most, mask);
      const int32_t place = thread.shuffle_xor(best, mask);
      if (place < a.c && (best == a.c || other > most || (other == most && place < best))) most = other, best = place;
    }
    float powers = 0, sum = 0;
    for (int64_t j = lane; j < a.c; j += kWarp) powers += std::exp(x[j] - most), sum += x[j] - most;
    powers = lane_sum(thread, powers, 1, kWarp), sum = lane_sum(thread, sum, 1, kWarp);
    const int64_t label = a.labels[row];
    const float share = a.smoothing / static_cast<float>(a.c);
    for (int64_t j = lane; j < a.c; j += kWarp)
      gradient[j] = std::exp(x[j] - most) / powers - share - (j == label ? 1 - a.smoothing : 0);
    loss += static_cast<double>(std::log(powers) - (1 - a.smoothing) * (x[label] - most) - share * sum);
    right += best == label ? 1 : 0;
  }
};

}  // namespace xformer::kernels
