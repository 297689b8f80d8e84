// The mean over tokens (token_mean.h) as a device program each way. Forwards a block has two runs of columns of one
// sequence, so that there are blocks enough, and its threads every so many tokens of them, whose sums meet in one
// order. Backwards a few lanes of a warp write a token.
#pragma once

#include "kernels/device/thread.h"

namespace xformer::kernels {

inline constexpr int kMeanThreads = 512, kMeanLanes = 2, kMeanColumns = kMeanLanes * kRun;  // of a block, forwards
inline constexpr int kMeanTokens = kMeanThreads / kMeanLanes;                               // at once
inline constexpr int kMeanWarps = kMeanThreads / kWarp;
inline constexpr int kSpreadThreads = 256;

struct TokenMeanArguments {
  const float* x = nullptr;     // [b,n,d]
  const bool* valid = nullptr;  // [b,n]; null: all count
  int64_t b = 0, n = 0, pinned = 0;
  int d = 0;
  bool padded = false, wide = false;  // the second: rows are whole runs at sixteen bytes
  float* mean = nullptr;              // [b,d]
  float* share = nullptr;             // [b]: written forwards, read backwards
  const float* gradient = nullptr;    // [b,d]
  float* dx = nullptr;                // [b,n,d]

  [[nodiscard]] XFORMER_DEVICE bool counts(int64_t sample, int64_t token) const {
    return token >= pinned && (valid == nullptr || valid[sample * n + token]);
  }
};

[[nodiscard]] constexpr int64_t mean_blocks(int64_t d) { return (d + kMeanColumns - 1) / kMeanColumns; }
[[nodiscard]] constexpr LaunchGrid token_mean_grid(int64_t b, int64_t d) {
  return {b * mean_blocks(d), kMeanWarps * (kMeanColumns + 1) * 4};
}

struct TokenMeanForwardProgram {
  static constexpr int kThreads = kMeanThreads, kResident = 2;
  TokenMeanArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    auto* const sums = static_cast<float*>(thread.shared());  // [warps][columns]
    auto* const counts = reinterpret_cast<int*>(sums + kMeanWarps * kMeanColumns);
    const int warp = thread.index() / kWarp, lane = thread.index() % kMeanLanes;
    const int64_t sample = thread.block() / mean_blocks(a.d);
    const int column = static_cast<int>(thread.block() % mean_blocks(a.d)) * kMeanColumns + lane * kRun;
    const int width = run_length(a.d - column);
    constexpr int kAtOnce = 4;  // tokens that are read together
    float sum[kRun] = {};
    int count = 0;
    for (int64_t first = a.pinned + thread.index() / kMeanLanes; first < a.n; first += kAtOnce * kMeanTokens) {
      float some[kAtOnce][kRun];
      XFORMER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int64_t token = first + i * kMeanTokens;
        const bool there = token < a.n && a.counts(sample, token);
        count += there ? 1 : 0;
        load_run(thread, a.x + (there ? (sample * a.n + token) * a.d + column : 0), there ? width : 0, a.wide, some[i]);
      }
      XFORMER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        XFORMER_UNROLL
        for (int k = 0; k < kRun; ++k) sum[k] += some[i][k];
      }
    }
    XFORMER_UNROLL
    for (int k = 0; k < kRun; ++k) sum[k] = lane_sum(thread, sum[k], kMeanLanes, kWarp);
    count = lane_sum(thread, count, kMeanLanes, kWarp);
    if (thread.index() % kWarp < kMeanLanes) {
      XFORMER_UNROLL
      for (int k = 0; k < kRun; ++k) sums[warp * kMeanColumns + lane * kRun + k] = sum[k];
      if (lane == 0) counts[warp] = count;
    }
    thread.sync();
    if (thread.index() >= kMeanColumns) return;
    float total = 0;
    count = 0;
    for (int i = 0; i < kMeanWarps; ++i) total += sums[i * kMeanColumns + thread.index()], count += counts[i];
    const int64_t tokens = a.padded ? a.n - a.pinned : count;
    const float share = tokens > 0 ? 1 / static_cast<float>(tokens) : 1.0f;
    const int64_t block_column = thread.block() % mean_blocks(a.d) * kMeanColumns + thread.index();
    if (block_column < a.d) a.mean[sample * a.d + block_column] = total * share;
    if (block_column == 0) a.share[sample] = share;
  }
};

struct TokenMeanBackwardProgram {
  static constexpr int kThreads = kSpreadThreads, kResident = 4;
  TokenMeanArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const int lanes = row_lanes(a.d), lane = thread.index() % lanes;
    const int64_t row = thread.block() * (kThreads / lanes) + thread.index() / lanes, sample = row / a.n;
    if (sample >= a.b) return;
    const float share = a.counts(sample, row % a.n) ? a.share[sample] : 0.0f;
    for (int column = lane * kRun; column < a.d; column += lanes * kRun) {
      const int width = run_length(a.d - column);
      float slope[kRun];
      load_run(thread, a.gradient + sample * a.d + column, width, a.wide, slope);
      XFORMER_UNROLL
      for (int k = 0; k < kRun; ++k) slope[k] *= share;
      store_run(thread, slope, width, a.wide, a.dx + row * a.d + column);
    }
  }
};

// launch(grid, program) for either pass.
template <class Launch>
auto run_token_mean(const TokenMeanArguments& a, bool backward, const Launch& launch) {
  return backward ? launch(row_grid(a.b * a.n, a.d, kSpreadThreads), TokenMeanBackwardProgram{a})
                  : launch(token_mean_grid(a.b, a.d), TokenMeanForwardProgram{a});
}

}  // namespace xformer::kernels
