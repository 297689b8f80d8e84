// Rows by a table of places (picked_rows.h) as a device program each way. Picking, a thread has a run of one row.
// Summing, a few lanes of a warp have a row of the sums, and the warp goes over the table for the few that are its own:
// nothing is added by atomics, and each sum in the rows' order.
#pragma once

#include "kernels/device/heads.h"

namespace xformer::kernels {

inline constexpr int kMovedRowsThreads = 256;

struct MovedRowsArguments {
  ElementType type = ElementType::kFloat;
  const void* x = nullptr;          // [b,h,n,d] to pick from, or [b,h,m,d] to sum up
  HeadPlaces rows;                  // where x's lie
  const int64_t* places = nullptr;  // [b,h,m] below n; negative: of no row
  void* out = nullptr;              // [b,h,m,d] or [b,h,n,d]
  int64_t b = 0, h = 0, n = 0, m = 0, d = 0;
  bool sums = false, wide = false;  // the second: rows of both are whole runs at sixteen bytes
};

// How a warp is shared out to rows of the sums.
struct SummingWarp {
  int lanes, rows;         // of a row at a time; rows of a warp
  int64_t chunks, groups;  // of a row; of a head's rows

  XFORMER_DEVICE constexpr explicit SummingWarp(const MovedRowsArguments& a)
      : lanes(row_lanes(a.d)),
        rows(kWarp / lanes),
        chunks((runs_of(a.d) + lanes - 1) / lanes),
        groups((a.n + rows - 1) / rows) {}
};

[[nodiscard]] constexpr LaunchGrid moved_rows_grid(const MovedRowsArguments& a) {
  constexpr int kWarps = kMovedRowsThreads / kWarp;
  if (!a.sums) return {(a.b * a.h * a.m * runs_of(a.d) + kMovedRowsThreads - 1) / kMovedRowsThreads, 0};
  const SummingWarp share(a);
  return {(a.b * a.h * share.groups * share.chunks + kWarps - 1) / kWarps, 0};
}

// Where a row of one head begins.
template <class Value>
[[nodiscard]] XFORMER_DEVICE const Value* moved_row(const MovedRowsArguments& a, int64_t head, int64_t row) {
  return at_head<Value>(a.x, a.rows, {head / a.h, head % a.h, 0}) + row * a.rows.row;
}

template <class Value>
struct PickedRowsProgram {
  static constexpr int kThreads = kMovedRowsThreads, kResident = 8;
  MovedRowsArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const int64_t at = thread.block() * kThreads + thread.index(), row = at / runs_of(a.d);
    if (row >= a.b * a.h * a.m) return;
    const int64_t column = at % runs_of(a.d) * kRun, place = a.places[row];
    const int count = run_length(a.d - column);
    float values[kRun] = {};
    if (place >= 0) load_run(thread, moved_row<Value>(a, row / a.m, place) + column, count, a.wide, values);
    store_run(thread, values, count, a.wide, static_cast<Value*>(a.out) + row * a.d + column);
  }
};

template <class Value>
struct SummedRowsProgram {
  static constexpr int kThreads = kMovedRowsThreads, kResident = 4;
  MovedRowsArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const SummingWarp share(a);
    const int lane = thread.index() % kWarp;
    const int64_t warp = thread.block() * (kThreads / kWarp) + thread.index() / kWarp;
    const int64_t chunk = warp % share.chunks, head = warp / share.chunks / share.groups;
    if (head >= a.b * a.h) return;
    const int64_t first = warp / share.chunks % share.groups * share.rows, own = first + lane / share.lanes;
    const int64_t column = (chunk * share.lanes + lane % share.lanes) * kRun;
    const int count = own < a.n ? run_length(a.d - column) : 0;
    const int64_t* const places = a.places + head * a.m;
    float sum[kRun] = {}, more[kRun];
    for (int64_t from = 0; from < a.m; from += kWarp) {
      const int64_t i = from + lane, place = i < a.m ? places[i] : -1;
      uint32_t some = thread.ballot(place >= first && place < first + share.rows);
      for (int64_t row = from; some != 0; ++row, some >>= 1) {
        if ((some & 1) == 0 || count == 0 || places[row] != own) continue;
        load_run(thread, moved_row<Value>(a, head, row) + column, count, a.wide, more);
        XFORMER_UNROLL
        for (int k = 0; k < kRun; ++k) sum[k] += more[k];
      }
    }
    if (count > 0)
      store_run(thread, sum, count, a.wide, static_cast<Value*>(a.out) + (head * a.n + own) * a.d + column);
  }
};

// launch(grid, program) for these arguments. `Types` has what a device calls Half and BFloat16.
template <class Types, class Launch>
auto run_moved_rows(const MovedRowsArguments& a, const Launch& launch) {
  const LaunchGrid grid = moved_rows_grid(a);
  return with_element<Types>(a.type, [&]<class Value>(Value) {
    return a.sums ? launch(grid, SummedRowsProgram<Value>{a}) : launch(grid, PickedRowsProgram<Value>{a});
  });
}

}  // namespace xformer::kernels
