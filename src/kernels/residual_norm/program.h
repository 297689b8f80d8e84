// Residual and norm (residual_norm.h) as device programs: a few lanes of a warp hold a row in registers, kRun
// neighbouring elements each, from the sum to the last gradient.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/device/part_sums.h"
#include "kernels/residual_norm/row_norm.h"

namespace xformer::kernels {

inline constexpr int kRowThreads = 256;
// The widest rows that fit into registers; wider ones are composed of plain operations.
[[nodiscard]] constexpr int64_t widest_row(ElementType type) { return type == ElementType::kDouble ? 256 : 512; }
// Blocks of a backward pass, each of which sums gradients of weight and bias by itself: three for each multiprocessor
// of a large device, and the same number, hence the same order of summation, on every other.
inline constexpr int64_t kRowParts = 396;

// Rows among threads: `lanes` neighbouring ones hold a row, each `packs` runs of it.
struct RowPlan {
  int lanes = 1, packs = 1;
  int64_t rows = 1;  // of a block at a time
};

[[nodiscard]] constexpr RowPlan row_plan(int64_t width) {
  RowPlan plan;
  plan.lanes = row_lanes(width);
  plan.packs = width <= kWarp * kRun ? 1 : 2;
  plan.rows = kRowThreads / plan.lanes;
  return plan;
}

[[nodiscard]] constexpr LaunchGrid row_forward_grid(int64_t rows, int64_t width) {
  const int64_t at_once = row_plan(width).rows;
  return {std::min<int64_t>((rows + at_once - 1) / at_once, kMostBlocks), 0};
}

[[nodiscard]] constexpr LaunchGrid row_backward_grid(int64_t rows, int64_t width) {
  const int64_t at_once = row_plan(width).rows;
  return {std::min<int64_t>((rows + at_once - 1) / at_once, kRowParts), 2 * width * int64_t{sizeof(double)}};
}

struct ResidualNormForwardArguments {
  ElementType type = ElementType::kFloat, branch_type = ElementType::kFloat;  // the first float or double
  const void *x = nullptr, *branch = nullptr;  // [rows, width], contiguous; the second may be null
  void *sum = nullptr, *normed = nullptr;      // null: not wanted (the sum where there is no branch)
  void *mean = nullptr, *rstd = nullptr;       // [rows]; null without `normed`
  const void *weight = nullptr, *bias = nullptr;
  const bool* needed = nullptr;  // [rows]; null: all are
  int64_t rows = 0, width = 0;
  double epsilon = 0;
  bool wide = false;  // everything is 16-byte aligned and the width a multiple of kRun
  DeviceDrop drop;
};

struct ResidualNormBackwardArguments {
  ElementType type = ElementType::kFloat;
  const void *sum = nullptr, *mean = nullptr, *rstd = nullptr, *weight = nullptr;
  const void *normed_gradient = nullptr, *sum_gradient = nullptr;  // the second may be null
  void *x_gradient = nullptr, *branch_gradient = nullptr;          // the second may be null: not wanted
  void* parts = nullptr;         // [blocks, 2, width]: sums of the gradients of weight and bias
  float* sums = nullptr;         // [2, width]: over all blocks; null of doubles
  const bool* needed = nullptr;  // [rows]; null: all are
  int64_t rows = 0, width = 0;
  bool has_branch = false;  // without one, the sum's gradient is x's in rows that nobody needs, too
  bool wide = false;
  DeviceDrop drop;
};

// Whether a row is there and somebody needs it.
[[nodiscard]] XFORMER_DEVICE bool row_lives(const bool* needed, int64_t row, int64_t rows) {
  return row < rows && (needed == nullptr || needed[row]);
}

// Where a thread stands in its row.
struct RowPlace {
  int lanes, lane;
  int64_t row;  // of the block's at once

  template <class Thread>
  XFORMER_DEVICE RowPlace(const Thread& thread, int64_t width)
      : lanes(row_plan(width).lanes), lane(thread.index() % lanes), row(thread.index() / lanes) {}

  [[nodiscard]] XFORMER_DEVICE int64_t column(int pack) const { return int64_t{pack * lanes + lane} * kRun; }
  // Elements of run `pack` that exist.
  [[nodiscard]] XFORMER_DEVICE int count(int pack, int64_t width) const { return run_length(width - column(pack)); }
};

template <class Value, class Branch, int kPacks>
struct ResidualNormForwardProgram {
  static constexpr int kThreads = kRowThreads, kResident = kPacks == 1 && sizeof(Value) == 4 ? 3 : 2;
  ResidualNormForwardArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    using Math = typename Arithmetic<Value>::Type;
    const RowPlace place(thread, a.width);
    const DeviceDraws draws(a.drop);
    const int64_t at_once = kThreads / place.lanes;
    const auto width = static_cast<Math>(a.width);
    for (int64_t first = thread.block() * at_once; first < a.rows; first += thread.blocks() * at_once) {
      const int64_t row = first + place.row;
      // A row that nobody needs reads nothing, and all that it makes is zero; one that is not there makes nothing, and
      // lends its lanes to the sums.
      const bool exists = row < a.rows, lives = row_lives(a.needed, row, a.rows);
      const auto count_of = [&](int pack) { return lives ? place.count(pack, a.width) : 0; };
      const auto made_of = [&](int pack) { return exists ? place.count(pack, a.width) : 0; };
      Math sum[kPacks][kRun];
      XFORMER_UNROLL
      for (int pack = 0; pack < kPacks; ++pack) {
        const int count = count_of(pack);
        const int64_t element = row * a.width + place.column(pack);
        load_run(thread, static_cast<const Value*>(a.x) + element, count, a.wide, sum[pack]);
        if (a.branch != nullptr) {
          Math branch[kRun];
          load_run(thread, static_cast<const Branch*>(a.branch) + element, count, a.wide, branch);
          if (count > 0) draws.apply(element, branch);
          for (int i = 0; i < kRun; ++i) sum[pack][i] += i < count ? branch[i] : Math(0);
          store_run(thread, sum[pack], made_of(pack), a.wide, static_cast<Value*>(a.sum) + element);
        }
      }
      if (a.normed == nullptr) continue;
      const RowStatistics<Math> of =
          row_statistics(thread, sum, place.lanes, width, static_cast<Math>(a.epsilon), count_of);
      XFORMER_UNROLL
      for (int pack = 0; pack < kPacks; ++pack) {
        const int64_t column = place.column(pack);
        norm_run(thread, of, static_cast<const Math*>(a.weight) + column, static_cast<const Math*>(a.bias) + column,
                 count_of(pack), a.wide, sum[pack]);
        store_run(thread, sum[pack], made_of(pack), a.wide, static_cast<Value*>(a.normed) + row * a.width + column);
      }
      if (exists && place.lane == 0)
        static_cast<Math*>(a.mean)[row] = of.mean, static_cast<Math*>(a.rstd)[row] = lives ? of.rstd : Math(0);
    }
  }
};

// With u = (sum - mean) rstd and g = gradient of normed * weight: dx = dsum + rstd (g - mean(g) - u mean(g u)).
template <class Value, int kPacks>
struct ResidualNormBackwardProgram {
  static constexpr int kThreads = kRowThreads, kResident = kPacks == 1 && sizeof(Value) == 4 ? 3 : 1;
  ResidualNormBackwardArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    using Math = typename Arithmetic<Value>::Type;
    const RowPlace place(thread, a.width);
    const DeviceDraws draws(a.drop);
    const int64_t at_once = kThreads / place.lanes;
    const auto width = static_cast<Math>(a.width);
    Math weight_gradient[kPacks][kRun] = {}, bias_gradient[kPacks][kRun] = {};
    for (int64_t first = thread.block() * at_once; first < a.rows; first += thread.blocks() * at_once) {
      const int64_t row = first + place.row;
      const bool exists = row < a.rows, lives = row_lives(a.needed, row, a.rows);
      const Math mean = lives ? static_cast<const Math*>(a.mean)[row] : Math(0);
      const Math rstd = lives ? static_cast<const Math*>(a.rstd)[row] : Math(0);
      Math u[kPacks][kRun], g[kPacks][kRun], total = 0, slope = 0;
      XFORMER_UNROLL
      for (int pack = 0; pack < kPacks; ++pack) {
        const int count = lives ? place.count(pack, a.width) : 0;
        const int64_t element = row * a.width + place.column(pack);
        load_run(thread, static_cast<const Value*>(a.sum) + element, count, a.wide, u[pack]);
        load_run(thread, static_cast<const Value*>(a.normed_gradient) + element, count, a.wide, g[pack]);
        Math weight[kRun];  // read each time: there are no registers for it
        load_run(thread, static_cast<const Math*>(a.weight) + place.column(pack), place.count(pack, a.width), a.wide,
                 weight);
        for (int i = 0; i < kRun; ++i) {
          u[pack][i] = i < count ? (u[pack][i] - mean) * rstd : Math(0);
          weight_gradient[pack][i] += g[pack][i] * u[pack][i];
          bias_gradient[pack][i] += g[pack][i];
          g[pack][i] *= weight[i];
          total += g[pack][i];
          slope += g[pack][i] * u[pack][i];
        }
      }
      total = lane_sum(thread, total, 1, place.lanes) / width;
      slope = lane_sum(thread, slope, 1, place.lanes) / width;
      XFORMER_UNROLL
      for (int pack = 0; pack < kPacks; ++pack) {
        const int count = exists ? place.count(pack, a.width) : 0;
        const int64_t element = row * a.width + place.column(pack);
        for (int i = 0; i < kRun; ++i) g[pack][i] = rstd * (g[pack][i] - total - u[pack][i] * slope);
        if (a.sum_gradient != nullptr) {
          Math more[kRun];
          load_run(thread, static_cast<const Value*>(a.sum_gradient) + element, lives || !a.has_branch ? count : 0,
                   a.wide, more);
          for (int i = 0; i < kRun; ++i) g[pack][i] += more[i];
        }
        store_run(thread, g[pack], count, a.wide, static_cast<Value*>(a.x_gradient) + element);
      }
      if (a.branch_gradient == nullptr) continue;
      XFORMER_UNROLL
      for (int pack = 0; pack < kPacks; ++pack) {
        const int count = exists ? place.count(pack, a.width) : 0;
        if (count == 0) continue;
        const int64_t element = row * a.width + place.column(pack);
        draws.apply(element, g[pack]);
        store_run(thread, g[pack], count, a.wide, static_cast<Value*>(a.branch_gradient) + element);
      }
    }
    XFORMER_UNROLL
    for (int pack = 0; pack < kPacks; ++pack)
      for (int i = 0; i < kRun; ++i) {
        weight_gradient[pack][i] = lane_sum(thread, weight_gradient[pack][i], place.lanes, kWarp);
        bias_gradient[pack][i] = lane_sum(thread, bias_gradient[pack][i], place.lanes, kWarp);
      }
    // One warp behind the other adds what its rows came to, so that the order is always the same.
    Math* const shared = static_cast<Math*>(thread.shared());
    for (int warp = 0; warp < kThreads / kWarp; ++warp) {
      if (thread.index() / kWarp == warp && thread.index() % kWarp < place.lanes) {
        XFORMER_UNROLL
        for (int pack = 0; pack < kPacks; ++pack)
          for (int i = 0; i < kRun; ++i) {
            if (i >= place.count(pack, a.width)) continue;
            Math* const into = shared + place.column(pack) + i;
            into[0] = weight_gradient[pack][i] + (warp == 0 ? Math(0) : into[0]);
            into[a.width] = bias_gradient[pack][i] + (warp == 0 ? Math(0) : into[a.width]);
          }
      }
      thread.sync();
    }
    for (int64_t i = thread.index(); i < 2 * a.width; i += kThreads)
      static_cast<Math*>(a.parts)[thread.block() * 2 * a.width + i] = shared[i];
  }
};

// launch(program) with the types and sizes of these arguments. `Types` has what a device calls Half and BFloat16.
template <class Types, class Launch>
auto choose_program(const ResidualNormForwardArguments& a, const Launch& launch) {
  const auto with_packs = [&]<class Branch>(Branch) {
    return row_plan(a.width).packs == 1 ? launch(ResidualNormForwardProgram<float, Branch, 1>{a})
                                        : launch(ResidualNormForwardProgram<float, Branch, 2>{a});
  };
  if (a.type == ElementType::kDouble) return launch(ResidualNormForwardProgram<double, double, 1>{a});
  return with_element<Types>(a.branch_type, with_packs);
}

// launch(grid, program) for the pass over rows, and of floats for the sums over its parts.
template <class Launch>
void run_row_backward(const ResidualNormBackwardArguments& a, const Launch& launch) {
  const LaunchGrid grid = row_backward_grid(a.rows, a.width);
  if (a.type == ElementType::kDouble) return launch(grid, ResidualNormBackwardProgram<double, 1>{a});
  if (row_plan(a.width).packs == 1) launch(grid, ResidualNormBackwardProgram<float, 1>{a});
  else launch(grid, ResidualNormBackwardProgram<float, 2>{a});
  run_part_sums({static_cast<const float*>(a.parts), a.sums, grid.blocks, 2 * a.width}, launch);
}

}  // namespace xformer::kernels
