// One softmax over parts (joined_softmax.h) as a device program each way: a few lanes of a warp have a row, kRun
// neighbouring elements each at a time, and go over its parts. The shares are made anew from the logs wherever they are
// needed: a row's parts are few, and an array of them would not fit registers.
#pragma once

#include <cmath>

#include "kernels/device/heads.h"

namespace xformer::kernels {

inline constexpr int kJoinedThreads = 256;
inline constexpr int kMostJoined = 16;  // parts; more are left to plain operations

struct JoinedPart {
  const float* out = nullptr;  // [b,h,rows,e]
  HeadPlaces places;
  const float* log_sum = nullptr;  // [b,h,rows]
  int64_t rows = 0;                // n or more
  // Written backwards, zero behind row n: in memory [b,rows,h,e], and as log_sum.
  float* out_gradient = nullptr;
  float* log_gradient = nullptr;
};

struct JoinedArguments {
  JoinedPart part[kMostJoined];
  int parts = 0, e = 0;
  int64_t b = 0, h = 0, n = 0;
  int64_t rows = 0;         // that a head's lanes go over: n, or backwards those of its longest part
  float* result = nullptr;  // in memory [b,n,h,e]
  const float* gradient = nullptr;
  HeadPlaces gradient_places;
  bool wide = false;  // whole runs at sixteen bytes in what is written
};

// Where a thread stands.
struct JoinedPlace {
  int lanes, lane;
  int64_t sample, head, row;
  bool lives, counts;  // rows that are none lend their lanes to the sums; those behind n have gradients, all zero

  template <class Thread>
  XFORMER_DEVICE JoinedPlace(const Thread& thread, const JoinedArguments& a)
      : lanes(row_lanes(a.e)), lane(thread.index() % lanes) {
    const int64_t at = thread.block() * (kJoinedThreads / lanes) + thread.index() / lanes;
    sample = at / a.rows / a.h, head = at / a.rows % a.h, row = at % a.rows;
    lives = sample < a.b;
    counts = lives && row < a.n;
  }

  // Of [b,h,rows,e] by its strides; of [b,rows,h,e]; of [b,h,rows].
  [[nodiscard]] XFORMER_DEVICE int64_t in(const HeadPlaces& places) const {
    return sample * places.sample + head * places.head + row * places.row;
  }
  [[nodiscard]] XFORMER_DEVICE int64_t in_rows(const JoinedArguments& a, int64_t rows) const {
    return ((sample * rows + row) * a.h + head) * a.e;
  }
  [[nodiscard]] XFORMER_DEVICE int64_t in_logs(const JoinedArguments& a, int64_t rows) const {
    return (sample * a.h + head) * rows + row;
  }
};

// A row's softmax over its parts.
template <class Thread>
class JoinedShares {
 public:
  XFORMER_DEVICE JoinedShares(const Thread& thread, const JoinedArguments& a, const JoinedPlace& place)
      : thread_(thread), a_(a), place_(place) {
    if (!place.counts) return;
    for (int p = 0; p < a.parts; ++p) largest_ = log_of(p) > largest_ ? log_of(p) : largest_;
    float sum = 0;
    for (int p = 0; p < a.parts; ++p) sum += thread.exp(log_of(p) - largest_);
    scale_ = 1 / sum;
  }

  [[nodiscard]] XFORMER_DEVICE float of(int p) const {
    return place_.counts ? thread_.exp(log_of(p) - largest_) * scale_ : 0.0f;
  }

 private:
  [[nodiscard]] XFORMER_DEVICE float log_of(int p) const {
    const JoinedPart& part = a_.part[p];
    return part.log_sum[place_.in_logs(a_, part.rows)];
  }

  const Thread& thread_;
  const JoinedArguments& a_;
  const JoinedPlace& place_;
  float largest_ = -INFINITY, scale_ = 0;
};

struct JoinedForwardProgram {
  static constexpr int kThreads = kJoinedThreads, kResident = 4;
  JoinedArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const JoinedPlace place(thread, a);
    if (!place.lives) return;
    const JoinedShares<Thread> shares(thread, a, place);
    for (int column = place.lane * kRun; column < a.e; column += place.lanes * kRun) {
      const int width = run_length(a.e - column);
      float sum[kRun] = {}, more[kRun];
      for (int p = 0; p < a.parts; ++p) {
        const JoinedPart& part = a.part[p];
        const float share = shares.of(p);
        load_run(thread, part.out + place.in(part.places) + column, width, part.places.wide, more);
        XFORMER_UNROLL
        for (int k = 0; k < kRun; ++k) sum[k] += share * more[k];
      }
      store_run(thread, sum, width, a.wide, a.result + place.in_rows(a, a.n) + column);
    }
  }
};

struct JoinedBackwardProgram {
  static constexpr int kThreads = kJoinedThreads, kResident = 4;
  JoinedArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const JoinedPlace place(thread, a);
    const JoinedShares<Thread> shares(thread, a, place);
    float mean = 0;  // of the parts' products with the gradient, by their shares
    for (int p = 0; p < a.parts; ++p) mean += shares.of(p) * product(thread, place, p);
    mean = lane_sum(thread, mean, 1, place.lanes);
    for (int p = 0; p < a.parts; ++p) {
      const JoinedPart& part = a.part[p];
      const float share = shares.of(p), own = lane_sum(thread, product(thread, place, p), 1, place.lanes);
      if (!place.lives || place.row >= part.rows) continue;
      if (place.lane == 0) part.log_gradient[place.in_logs(a, part.rows)] = place.counts ? share * (own - mean) : 0.0f;
      for (int column = place.lane * kRun; column < a.e; column += place.lanes * kRun) {
        const int width = run_length(a.e - column);
        float slope[kRun];
        load_slope(thread, place, column, slope);
        XFORMER_UNROLL
        for (int k = 0; k < kRun; ++k) slope[k] *= share;
        store_run(thread, slope, width, a.wide, part.out_gradient + place.in_rows(a, part.rows) + column);
      }
    }
  }

 private:
  // Zero behind row n.
  template <class Thread>
  XFORMER_DEVICE void load_slope(const Thread& thread, const JoinedPlace& place, int column, float* slope) const {
    const int width = place.counts ? run_length(a.e - column) : 0;
    load_run(thread, a.gradient + place.in(a.gradient_places) + column, width, a.gradient_places.wide, slope);
  }

  // The lane's part of that of a part's row and the gradient.
  template <class Thread>
  XFORMER_DEVICE float product(const Thread& thread, const JoinedPlace& place, int p) const {
    const JoinedPart& part = a.part[p];
    float dot = 0, slope[kRun], own[kRun];
    for (int column = place.lane * kRun; place.counts && column < a.e; column += place.lanes * kRun) {
      load_slope(thread, place, column, slope);
      load_run(thread, part.out + place.in(part.places) + column, run_length(a.e - column), part.places.wide, own);
      XFORMER_UNROLL
      for (int k = 0; k < kRun; ++k) dot += slope[k] * own[k];
    }
    return dot;
  }
};

// launch(grid, program) for either pass.
template <class Launch>
auto run_joined(const JoinedArguments& a, bool backward, const Launch& launch) {
  const LaunchGrid grid = row_grid(a.b * a.h * a.rows, a.e, kJoinedThreads);
  return backward ? launch(grid, JoinedBackwardProgram{a}) : launch(grid, JoinedForwardProgram{a});
}

}  // namespace xformer::kernels
