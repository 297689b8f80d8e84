// Pooling and repeating (pooling.h) as a device program each way, all groups of heads in one launch: a few neighbouring
// lanes share the tokens of a span and have kRun columns of them, so that every token and every row is read or written
// once.
#pragma once

#include "kernels/device/heads.h"

namespace xformer::kernels {

inline constexpr int kPoolThreads = 256;
// Of one launch; more are left to plain operations.
inline constexpr int kMostPoolGroups = 8, kMostPooledHeads = 64;

struct PoolArguments {
  struct Group {
    const void* rows = nullptr;  // [b,heads,pooled,d], read to be repeated
    void* rows_made = nullptr;   // the same, written
    HeadPlaces places;
    int64_t scale = 1, pooled = 0;
    int heads = 0, first = 0;  // `first`: of them in PoolArguments::heads
  };

  ElementType type = ElementType::kFloat;  // of tokens and rows; not double
  const void* x = nullptr;                 // [b,h,n,d], read to be pooled
  void* x_made = nullptr;                  // the same, written
  HeadPlaces places;
  const bool* valid = nullptr;  // [b,n]: others are zero in groups whose scale is not 1; null: all are
  bool mean = false;            // divided by how many tokens of a span are valid
  int64_t b = 0, n = 0, pinned = 0;
  int d = 0, count = 0;
  Group groups[kMostPoolGroups];
  int16_t heads[kMostPooledHeads] = {};
};

// Rows of a sequence pooled by `scale` (tensor/sequence_mask.h: pooled_len).
[[nodiscard]] constexpr int64_t pooled_rows(int64_t n, int64_t scale, int64_t pinned) {
  return pinned + (n - pinned + scale - 1) / scale;
}
// Lanes that share a span: each has four tokens of it or more.
[[nodiscard]] constexpr int pool_lanes(int64_t scale) {
  int lanes = 1;
  while (lanes < 8 && 8 * lanes <= scale) lanes *= 2;
  return lanes;
}
// A group's blocks.
[[nodiscard]] constexpr int64_t pool_blocks(int64_t b, int64_t d, const PoolArguments::Group& group) {
  const int64_t threads = b * group.heads * group.pooled * runs_of(d) * pool_lanes(group.scale);
  return (threads + kPoolThreads - 1) / kPoolThreads;
}
[[nodiscard]] constexpr LaunchGrid pool_grid(const PoolArguments& a) {
  LaunchGrid grid;
  for (int i = 0; i < a.count; ++i) grid.blocks += pool_blocks(a.b, a.d, a.groups[i]);
  return grid;
}

// Tokens to the rows of their spans, or the rows to all tokens of their spans.
template <class Value, bool kPool>
struct PoolProgram {
  static constexpr int kThreads = kPoolThreads, kResident = 4;
  PoolArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    int which = 0;
    int64_t block = thread.block();
    for (; block >= pool_blocks(a.b, a.d, a.groups[which]); ++which) block -= pool_blocks(a.b, a.d, a.groups[which]);
    const PoolArguments::Group& group = a.groups[which];
    const int lanes = pool_lanes(group.scale), lane = thread.index() % lanes;
    const int64_t item = (block * kThreads + thread.index()) / lanes, unit = item / runs_of(a.d);
    const int column = static_cast<int>(item % runs_of(a.d)) * kRun;
    const int64_t row = unit % group.pooled, within = unit / group.pooled % group.heads;
    const int64_t b = unit / group.pooled / group.heads;
    const bool lives = b < a.b;  // the others lend their lanes to the sums
    const int width = lives ? run_length(a.d - column) : 0;

    // Tokens from .. to - 1.
    const bool alone = row < a.pinned;
    const int64_t from = alone ? row : a.pinned + (row - a.pinned) * group.scale;
    const int64_t behind = alone ? row + 1 : from + group.scale, to = !lives ? from : behind < a.n ? behind : a.n;
    const bool* const valid = a.valid == nullptr || group.scale == 1 || !lives ? nullptr : a.valid + b * a.n;
    const auto counts = [&](int64_t token) { return valid == nullptr || valid[token]; };
    const int64_t head = lives ? b * a.places.sample + a.heads[group.first + within] * a.places.head : 0;
    const int64_t place = b * group.places.sample + within * group.places.head + row * group.places.row + column;

    float values[kRun] = {};
    int count = 0;
    for (int64_t token = from + lane; token < to; token += lanes) {
      if (!counts(token)) continue;
      ++count;
      if constexpr (kPool) {
        float more[kRun];
        load_run(thread, static_cast<const Value*>(a.x) + head + token * a.places.row + column, width, a.places.wide,
                 more);
        XFORMER_UNROLL
        for (int i = 0; i < kRun; ++i) values[i] += more[i];
      }
    }
    count = lane_sum(thread, count, 1, lanes);
    if constexpr (kPool) {
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) {
        values[i] = lane_sum(thread, values[i], 1, lanes);
        if (a.mean && count > 1) values[i] /= static_cast<float>(count);
      }
      if (lane == 0) store_run(thread, values, width, group.places.wide, static_cast<Value*>(group.rows_made) + place);
    } else {
      const float share = a.mean && count > 1 ? 1 / static_cast<float>(count) : 1.0f;
      load_run(thread, static_cast<const Value*>(group.rows) + place, width, group.places.wide, values);
      for (int64_t token = from + lane; token < to; token += lanes) {
        float made[kRun];
        XFORMER_UNROLL
        for (int i = 0; i < kRun; ++i) made[i] = counts(token) ? share * values[i] : 0.0f;
        store_run(thread, made, width, a.places.wide,
                  static_cast<Value*>(a.x_made) + head + token * a.places.row + column);
      }
    }
  }
};

// `Types` has what a device calls Half and BFloat16.
template <class Types, bool kPool, class Launch>
auto run_pool(const PoolArguments& a, const Launch& launch) {
  return with_element<Types>(a.type,
                             [&]<class Value>(Value) { return launch(pool_grid(a), PoolProgram<Value, kPool>{a}); });
}

}  // namespace xformer::kernels
