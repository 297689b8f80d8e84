// Additive attention (additive_attention.h) as device programs. Every pair of a query and a key has a tanh for each
// channel, so nothing is a product of tiles. Two threads have a query, every second run of its channels in registers,
// and go over keys, of which a block brings 64 at a time to shared memory; all read the same one at once. Backwards
// another program has keys in its threads and goes over queries (gradient_programs.h). Nothing is added by atomics.
//
// With r = 1 / (1 + e^2x), tanh x = 1 - 2 r. Softmax does not see what the sum of w adds to all scores of a head, so
// scores here are sums of -2 w r; and as a row's slopes sum to 0, the gradient of w is that of these scores.
#pragma once

#include <cmath>

#include "kernels/device/heads.h"
#include "kernels/device/softmax.h"

namespace xformer::kernels {

inline constexpr int kAdditiveWidest = 64;  // d and e; wider heads are left to plain operations

struct AdditiveArguments {
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  HeadPlaces q_places, k_places, v_places;
  const float* w = nullptr;  // [h,d]
  float* out = nullptr;      // [b,n,h,e], written forwards and read backwards
  float* log_sum = nullptr;  // [b,h,n]: of the exponentials of the scores above; likewise
  int64_t b = 0, h = 0, n = 0, m = 0;
  int d = 0, e = 0;
  bool causal = false;
  const bool *key_valid = nullptr, *query_valid = nullptr;  // [b,m], [b,n]; null: all are
  DeviceDrop drop;

  // Of the backward pass alone.
  const float* gradient = nullptr;
  HeadPlaces gradient_places;
  float* delta = nullptr;                             // [b,h,n]: out . gradient
  float *dq = nullptr, *dk = nullptr, *dv = nullptr;  // [b,n,h,d], [b,m,h,d], [b,m,h,e]
  float* dw = nullptr;                                // [b,h,tiles of n,d]: each tile's part
};

// What a block keeps in shared memory: two tiles of rows, the draws of a tile of pairs, -2 w, two numbers for each row.
template <int kWidth>
struct AdditiveRoom {
  static constexpr int kStride = shared_stride(kWidth), kTile = kTileSide * kStride;
  static constexpr int64_t kBytes =
      (2 * kTile + TileDraws::kFloats + kWidth + 2 * kTileSide + kTileThreads / kWarp) * 4;
  SharedRows first, second;
  float* draws;
  float* factors;
  float* numbers;
  int* ends;

  template <class Thread>
  XFORMER_DEVICE explicit AdditiveRoom(const Thread& thread)
      : first{static_cast<float*>(thread.shared()), kStride},
        second{first.values + kTile, kStride},
        draws(second.values + kTile),
        factors(draws + TileDraws::kFloats),
        numbers(factors + kWidth),
        ends(reinterpret_cast<int*>(numbers + 2 * kTileSide)) {}

  [[nodiscard]] XFORMER_DEVICE SharedRows factor_row() const { return {factors, kStride}; }
};

// A block for each 64 rows of every head, queries or keys.
template <int kWidth>
[[nodiscard]] constexpr LaunchGrid additive_grid(int64_t heads, int64_t rows) {
  return {heads * tiles_of(rows), AdditiveRoom<kWidth>::kBytes};
}

// What a block of 64 rows of a head, queries or keys, reads of the head.
struct AdditiveHead {
  const AdditiveArguments& a;
  HeadBlock block;
  const bool *key_flags, *query_flags;  // of the sample

  XFORMER_DEVICE AdditiveHead(const AdditiveArguments& a, const HeadBlock& block)
      : a(a),
        block(block),
        key_flags(a.key_valid == nullptr ? nullptr : a.key_valid + block.b * a.m),
        query_flags(a.query_valid == nullptr ? nullptr : a.query_valid + block.b * a.n) {}

  [[nodiscard]] XFORMER_DEVICE static bool counts(const bool* flags, int64_t row, int64_t rows) {
    return row < rows && (flags == nullptr || flags[row]);
  }
  [[nodiscard]] XFORMER_DEVICE const float* of(const float* x, const HeadPlaces& places) const {
    return at_head<float>(x, places, block);
  }
  // The places of a row of a result [b,rows,h,width] and of a query's number [b,h,n].
  [[nodiscard]] XFORMER_DEVICE int64_t result(int64_t row, int64_t rows, int width) const {
    return ((block.b * rows + row) * a.h + block.h) * width;
  }
  [[nodiscard]] XFORMER_DEVICE int64_t statistic(int64_t row) const { return (block.b * a.h + block.h) * a.n + row; }
};

// The channels of a row that a thread has, of as many as two threads have together.
template <int kWidth>
struct AdditiveLane {
  static constexpr int kOwn = kWidth / 2, kRuns = kOwn / kRun;
  int row, part;  // of the block's 64, and which half of it

  template <class Thread>
  XFORMER_DEVICE explicit AdditiveLane(const Thread& thread) : row(thread.index() / 2), part(thread.index() % 2) {}

  // Of the thread's run `run` in its row. Runs alternate, so that both threads read from different banks.
  [[nodiscard]] XFORMER_DEVICE int column(int run) const { return (2 * run + part) * kRun; }

  // From a row of the device's memory, zeros if it does not count.
  template <class Thread>
  XFORMER_DEVICE void load(const Thread& thread, const float* from, bool wide, int width, bool counts,
                           float* into) const {
    XFORMER_UNROLL
    for (int run = 0; run < kRuns; ++run) {
      const int count = counts ? run_length(width - column(run)) : 0;
      load_run(thread, from + (count > 0 ? column(run) : 0), count, wide, into + run * kRun);
    }
  }
  // To a row of a result without gaps.
  template <class Thread>
  XFORMER_DEVICE void store(const Thread& thread, const float* values, int width, float* to) const {
    XFORMER_UNROLL
    for (int run = 0; run < kRuns; ++run)
      store_run(thread, values + run * kRun, run_length(width - column(run)), width % kRun == 0, to + column(run));
  }

  // visit(i, number) for the thread's channels of a row in shared memory.
  template <class Thread, class Visit>
  XFORMER_DEVICE void for_channels(const Thread& thread, const SharedRows& rows, int other, const Visit& visit) const {
    XFORMER_UNROLL
    for (int run = 0; run < kRuns; ++run) {
      float values[kRun];
      load_run(thread, rows.at(other, column(run)), kRun, /*wide=*/true, values);
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) visit(run * kRun + i, values[i]);
    }
  }
  // Over both threads of a row.
  template <class Thread>
  [[nodiscard]] XFORMER_DEVICE static float row_sum(const Thread& thread, float value) {
    return lane_sum(thread, value, 1, 2);
  }

  // What score() needs, for all threads: -2 w in shared memory, and twice the thread's channels of its row in `own`.
  template <class Thread>
  XFORMER_DEVICE void load_scorer(const Thread& thread, const AdditiveHead& head, const AdditiveRoom<kWidth>& room,
                                  const float* row, bool wide, bool counts, float* own) const {
    load(thread, row, wide, head.a.d, counts, own);
    XFORMER_UNROLL
    for (int i = 0; i < kOwn; ++i) own[i] *= 2;
    const int c = thread.index();
    if (c < kWidth) room.factors[c] = c < head.a.d ? -2 * head.a.w[head.block.h * head.a.d + c] : 0.0f;
    thread.sync();
  }
  // The score of the thread's row and one in the first tile; r[i] of each of the thread's channels.
  template <class Thread>
  [[nodiscard]] XFORMER_DEVICE float score(const Thread& thread, const float* own, const AdditiveRoom<kWidth>& room,
                                           int other, float* r) const {
    float sum = 0;
    for_channels(thread, room.first, other,
                 [&](int i, float number) { r[i] = thread.reciprocal(1 + thread.exp(own[i] + 2 * number)); });
    for_channels(thread, room.factor_row(), 0, [&](int i, float factor) { sum += factor * r[i]; });
    return row_sum(thread, sum);
  }
};

// One behind the last key that any query of a block sees; 0 where no query counts. For all threads.
template <class Thread>
XFORMER_DEVICE int64_t additive_keys_end(const Thread& thread, const AdditiveHead& head, int* memory) {
  const AdditiveArguments& a = head.a;
  const int64_t first = head.block.first;
  if (first >= valid_end(thread, head.query_flags, a.n, memory)) return 0;
  const int64_t end = valid_end(thread, head.key_flags, a.m, memory);
  return a.causal && first + kTileSide < end ? first + kTileSide : end;
}

// visit(j, key) for each key in turn that any query of a block may see, row j of both tiles, with the tile's draws in
// shared memory. For all threads.
template <int kWidth, class Thread, class Visit>
XFORMER_DEVICE void for_additive_keys(const Thread& thread, const AdditiveHead& head, const AdditiveRoom<kWidth>& room,
                                      const TileDraws& draws, const Visit& visit) {
  const AdditiveArguments& a = head.a;
  const int64_t end = additive_keys_end(thread, head, room.ends);
  for (int64_t first = 0; first < end; first += kTileSide) {
    thread.sync();
    load_tile<kWidth>(thread, head.of(a.k, a.k_places), a.k_places, a.d, first, a.m, head.key_flags, room.first);
    load_tile<kWidth>(thread, head.of(a.v, a.v_places), a.v_places, a.e, first, a.m, head.key_flags, room.second);
    draws.draw(thread, [&](int of_tile) { return head.statistic(head.block.first + of_tile) * a.m + first; });
    thread.sync();
    const int keys = static_cast<int>(end - first < kTileSide ? end - first : kTileSide);
    for (int j = 0; j < keys; ++j) visit(j, first + j);
  }
}

template <int kWidth>
struct AdditiveForwardProgram {
  static constexpr int kThreads = kTileThreads, kResident = kWidth == 32 ? 4 : 3;
  using Lane = AdditiveLane<kWidth>;
  AdditiveArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const AdditiveRoom<kWidth> room(thread);
    const AdditiveHead head(a, head_block(a.h, thread.block(), a.n));
    const TileDraws draws(a.drop, room.draws);
    const Lane lane(thread);
    const int64_t row = head.block.first + lane.row;
    const bool counts = AdditiveHead::counts(head.query_flags, row, a.n);
    float own[Lane::kOwn], out[Lane::kOwn] = {}, largest = -INFINITY, sum = 0;
    lane.load_scorer(thread, head, room, head.of(a.q, a.q_places) + (counts ? row : 0) * a.q_places.row,
                     a.q_places.wide, counts, own);
    for_additive_keys(thread, head, room, draws, [&](int j, int64_t key) {
      float r[Lane::kOwn];
      const float score = lane.score(thread, own, room, j, r);
      if (!counts || !AdditiveHead::counts(head.key_flags, key, a.m) || (a.causal && key > row)) return;
      const float now = score > largest ? score : largest;
      const float before = thread.exp(largest - now), weight = thread.exp(score - now);
      const float kept = weight * draws.factor(lane.row, j);
      largest = now;
      sum = sum * before + weight;
      lane.for_channels(thread, room.second, j, [&](int i, float value) { out[i] = out[i] * before + kept * value; });
    });
    if (row >= a.n) return;
    const float scale = sum > 0 ? 1 / sum : 0.0f;
    XFORMER_UNROLL
    for (int i = 0; i < Lane::kOwn; ++i) out[i] *= scale;
    lane.store(thread, out, a.e, a.out + head.result(row, a.n, a.e));
    if (lane.part == 0)
      a.log_sum[head.statistic(row)] = sum > 0 ? largest + std::log(sum) : static_cast<float>(INFINITY);
  }
};

}  // namespace xformer::kernels
