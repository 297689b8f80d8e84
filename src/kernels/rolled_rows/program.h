// Rolled rows (rolled_rows.h) as a device program each way: a few lanes of a warp have a row, kRun neighbouring
// elements each at a time, and go over its links, which are arguments of the launch. Backwards the same lanes follow
// the links back for the gradient of v, and forth for that of w, so nothing is added by two.
#pragma once

#include <algorithm>

#include "kernels/device/thread.h"

namespace xformer::kernels {

inline constexpr int kRolledThreads = 256;
inline constexpr int kMostLinks = 64;  // more are left to plain operations

struct RolledArguments {
  const float *v = nullptr, *w = nullptr;  // [b,n,e], [b,n,links]
  const float* gradient = nullptr;         // [b,n,e], read backwards
  float* result = nullptr;                 // [b,n,e]: y, or the gradient of v
  float* w_gradient = nullptr;             // [b,n,links], written backwards
  const bool* valid = nullptr;             // [b,n]; null: all rows are
  int64_t b = 0, n = 0;
  int e = 0, links = 0;
  bool residual = false;
  bool wide = false;               // all rows of e begin at sixteen bytes and are whole runs
  int64_t steps[kMostLinks] = {};  // 0 .. n - 1
};

// An offset as a step from 0 to n - 1.
[[nodiscard]] constexpr int64_t step_of(int64_t offset, int64_t n) { return (offset % n + n) % n; }
// Where a thread stands.
struct RolledPlace {
  int lanes, lane;
  int64_t row, i, sample;  // of all rows, of its sample's, and the sample's first
  bool lives, counts;      // rows that are none lend their lanes to the sums

  template <class Thread>
  XFORMER_DEVICE RolledPlace(const Thread& thread, const RolledArguments& a)
      : lanes(row_lanes(a.e)),
        lane(thread.index() % lanes),
        row(thread.block() * (kRolledThreads / lanes) + thread.index() / lanes),
        i(row % a.n),
        sample(row - i),
        lives(row < a.b * a.n),
        counts(lives && (a.valid == nullptr || a.valid[row])) {}

  // Of the kRun elements from `column` on, those that there are.
  [[nodiscard]] XFORMER_DEVICE static int width(const RolledArguments& a, int column) {
    return run_length(a.e - column);
  }
};

struct RolledForwardProgram {
  static constexpr int kThreads = kRolledThreads, kResident = 4;
  RolledArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const RolledPlace place(thread, a);
    if (!place.lives) return;
    for (int column = place.lane * kRun; column < a.e; column += place.lanes * kRun) {
      const int width = RolledPlace::width(a, column);
      float sum[kRun] = {}, more[kRun];
      if (place.counts) {
        if (a.residual) load_run(thread, a.v + place.row * a.e + column, width, a.wide, sum);
        for (int p = 0; p < a.links; ++p) {
          const int64_t there = place.i + a.steps[p], from = place.sample + (there < a.n ? there : there - a.n);
          const float weight = a.w[place.row * a.links + p];
          load_run(thread, a.v + from * a.e + column, width, a.wide, more);
          XFORMER_UNROLL
          for (int k = 0; k < kRun; ++k) sum[k] += weight * more[k];
        }
      }
      store_run(thread, sum, width, a.wide, a.result + place.row * a.e + column);
    }
  }
};

struct RolledBackwardProgram {
  static constexpr int kThreads = kRolledThreads, kResident = 4;
  RolledArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const RolledPlace place(thread, a);
    float sum[kRun], more[kRun];
    for (int column = place.lane * kRun; place.lives && column < a.e; column += place.lanes * kRun) {
      const int width = RolledPlace::width(a, column);
      load_run(thread, a.gradient + place.row * a.e + column, a.residual && place.counts ? width : 0, a.wide, sum);
      for (int p = 0; p < a.links; ++p) {
        const int64_t there = place.i - a.steps[p], from = place.sample + (there < 0 ? there + a.n : there);
        if (a.valid != nullptr && !a.valid[from]) continue;
        const float weight = a.w[from * a.links + p];
        load_run(thread, a.gradient + from * a.e + column, width, a.wide, more);
        XFORMER_UNROLL
        for (int k = 0; k < kRun; ++k) sum[k] += weight * more[k];
      }
      store_run(thread, sum, width, a.wide, a.result + place.row * a.e + column);
    }
    for (int p = 0; p < a.links; ++p) {
      const int64_t there = place.i + a.steps[p], to = place.sample + (there < a.n ? there : there - a.n);
      float dot = 0;
      for (int column = place.lane * kRun; place.counts && column < a.e; column += place.lanes * kRun) {
        const int width = RolledPlace::width(a, column);
        load_run(thread, a.gradient + place.row * a.e + column, width, a.wide, sum);
        load_run(thread, a.v + to * a.e + column, width, a.wide, more);
        XFORMER_UNROLL
        for (int k = 0; k < kRun; ++k) dot += sum[k] * more[k];
      }
      dot = lane_sum(thread, dot, 1, place.lanes);
      if (place.lives && place.lane == 0) a.w_gradient[place.row * a.links + p] = dot;
    }
  }
};

// launch(grid, program) for either pass.
template <class Launch>
auto run_rolled(const RolledArguments& a, bool backward, const Launch& launch) {
  const LaunchGrid grid = row_grid(a.b * a.n, a.e, kRolledThreads);
  return backward ? launch(grid, RolledBackwardProgram{a}) : launch(grid, RolledForwardProgram{a});
}

}  // namespace xformer::kernels
