// Sums over parts as a device program: what a pass wrote in parts, each of a block, is added in an order that depends
// on their number and the columns' alone. A warp of a block's kWarps has neighbouring columns and every kWarps-th part,
// and the block puts its warps together.
#pragma once

#include "kernels/device/thread.h"

namespace xformer::kernels {

struct PartSumsArguments {
  const float* parts = nullptr;  // [count, size]
  float* sums = nullptr;         // [size]
  int64_t count = 0, size = 0;
};

template <int kWarps>
struct PartSumsProgram {
  static constexpr int kThreads = kWarps * kWarp, kResident = 1024 / kThreads;
  static constexpr int kAtOnce = 8;
  PartSumsArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    auto* const shared = static_cast<float*>(thread.shared());
    const int lane = thread.index() % kWarp, warp = thread.index() / kWarp;
    const int64_t column = thread.block() * kWarp + lane;
    const float* const parts = a.parts + (column < a.size ? column : 0);
    float sum = 0;
    int64_t part = warp;
    for (; part + (kAtOnce - 1) * kWarps < a.count; part += kAtOnce * kWarps) {
      float some[kAtOnce];  // read together
      XFORMER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) some[i] = parts[(part + i * kWarps) * a.size];
      XFORMER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) sum += some[i];
    }
    for (; part < a.count; part += kWarps) sum += parts[part * a.size];
    shared[thread.index()] = sum;
    thread.sync();
    if (warp != 0 || column >= a.size) return;
    for (int i = 1; i < kWarps; ++i) sum += shared[i * kWarp + lane];
    a.sums[column] = sum;
  }
};

// A block for each kWarp columns, with a number of each thread.
[[nodiscard]] constexpr LaunchGrid part_sums_grid(int64_t size, int threads) {
  return {(size + kWarp - 1) / kWarp, int64_t{threads} * 4};
}

// launch(grid, program). Few columns are few blocks: more warps of each read at once.
template <class Launch>
void run_part_sums(const PartSumsArguments& a, const Launch& launch) {
  constexpr int64_t kFewBlocks = 64;
  const auto run = [&](const auto& program) { launch(part_sums_grid(a.size, program.kThreads), program); };
  if (part_sums_grid(a.size, 0).blocks <= kFewBlocks) run(PartSumsProgram<32>{a});
  else run(PartSumsProgram<8>{a});
}

}  // namespace xformer::kernels
