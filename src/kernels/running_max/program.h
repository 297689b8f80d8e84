// Running maxima (running_max.h) as a device program each way: a thread has one channel of a column's or row's cells
// and goes along them, neighbouring threads neighbouring channels. Backwards it goes there and back: there it leaves
// the largest before every cell where that cell's gradient will stand, so no other memory is asked for.
#pragma once

#include "kernels/device/thread.h"

namespace xformer::kernels {

inline constexpr int kRunningMaxThreads = 256;

struct RunningMaxArguments {
  const float* x = nullptr;         // [heads, rows, columns, d]
  const float* gradient = nullptr;  // likewise, read backwards
  float* result = nullptr;          // likewise: maxima, or the gradient of x
  const bool* valid = nullptr;      // [samples, rows, columns]
  int64_t heads = 0, heads_of_sample = 1;
  int64_t rows = 0, columns = 0, d = 0;
  bool down = true, behind = false;

  [[nodiscard]] XFORMER_DEVICE constexpr int64_t lanes() const { return down ? columns : rows; }
  [[nodiscard]] XFORMER_DEVICE constexpr int64_t cells() const { return down ? rows : columns; }
  [[nodiscard]] XFORMER_DEVICE constexpr int64_t channels() const { return heads * lanes() * d; }
};

[[nodiscard]] constexpr LaunchGrid running_max_grid(int64_t channels) {
  return {(channels + kRunningMaxThreads - 1) / kRunningMaxThreads, 0};
}

// A channel's cells in the order in which maxima run: where the first one lies, and how far the next one.
struct RunningMaxLane {
  bool lives;
  int64_t first, step;            // of x
  int64_t first_flag, flag_step;  // of valid

  template <class Thread>
  XFORMER_DEVICE RunningMaxLane(const Thread& thread, const RunningMaxArguments& a) {
    const int64_t channel = thread.block() * kRunningMaxThreads + thread.index();
    lives = channel < a.channels();
    const int64_t head = channel / a.d / a.lanes(), lane = channel / a.d % a.lanes();
    flag_step = a.down ? a.columns : 1;
    int64_t cell = a.down ? lane : lane * a.columns;
    if (a.behind) {
      cell += (a.cells() - 1) * flag_step;
      flag_step = -flag_step;
    }
    first_flag = head / a.heads_of_sample * a.rows * a.columns + cell;
    first = (head * a.rows * a.columns + cell) * a.d + channel % a.d;
    step = flag_step * a.d;
  }
};

// Of equal ones the later; a NaN is larger than all, and stays.
[[nodiscard]] XFORMER_DEVICE bool takes_over(float own, float largest) { return own >= largest || own != own; }

struct RunningMaxProgram {
  static constexpr int kThreads = kRunningMaxThreads, kResident = 8;
  RunningMaxArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const RunningMaxLane lane(thread, a);
    if (!lane.lives) return;
    float largest = 0;  // 0 where no cell counted yet
    bool any = false;
    int64_t at = lane.first, flag = lane.first_flag;
    for (int64_t i = 0; i < a.cells(); ++i, at += lane.step, flag += lane.flag_step) {
      a.result[at] = largest;
      if (!a.valid[flag]) continue;
      const float own = a.x[at];
      if (!any || takes_over(own, largest)) largest = own;
      any = true;
    }
  }
};

struct RunningMaxBackwardProgram {
  static constexpr int kThreads = kRunningMaxThreads, kResident = 8;
  RunningMaxArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const RunningMaxLane lane(thread, a);
    if (!lane.lives) return;
    float largest = 0;
    int64_t at = lane.first, flag = lane.first_flag, begin = a.cells();  // the first cell that counts
    for (int64_t i = 0; i < a.cells(); ++i, at += lane.step, flag += lane.flag_step) {
      a.result[at] = largest;
      if (!a.valid[flag]) continue;
      const float own = a.x[at];
      if (begin == a.cells()) begin = i, largest = own;
      else if (takes_over(own, largest)) largest = own;
    }
    // A cell that is the largest so far takes what the cells behind it have left.
    float sum = 0;
    for (int64_t i = a.cells() - 1; i >= 0; --i) {
      at -= lane.step, flag -= lane.flag_step;
      const bool takes = a.valid[flag] && (i == begin || takes_over(a.x[at], a.result[at]));
      a.result[at] = takes ? sum : 0.0f;
      sum = (takes ? 0.0f : sum) + a.gradient[at];
    }
  }
};

// launch(grid, program) for either pass.
template <class Launch>
auto run_running_max(const RunningMaxArguments& a, bool backward, const Launch& launch) {
  const LaunchGrid grid = running_max_grid(a.channels());
  return backward ? launch(grid, RunningMaxBackwardProgram{a}) : launch(grid, RunningMaxProgram{a});
}

}  // namespace xformer::kernels
