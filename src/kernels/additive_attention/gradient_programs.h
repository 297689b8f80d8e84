// The gradients of additive attention as device programs (program.h): one has queries in its threads and makes those of
// q and w, one has keys and makes those of k and v. Weights are made again from the logs of their sums.
#pragma once

#include <type_traits>

#include "kernels/additive_attention/program.h"

namespace xformer::kernels {

// d score / dx = -2 w dr / dx = 4 w (r - r^2): what one of (r - r^2) is of the sum's gradient, from factors = -2 w.
inline constexpr float kAdditiveSlope = -2;

template <int kWidth>
struct AdditiveQueryProgram {
  static constexpr int kThreads = kTileThreads, kResident = kWidth == 32 ? 3 : 2;
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
    float own[Lane::kOwn], slope[Lane::kOwn], dq[Lane::kOwn] = {}, dw[Lane::kOwn] = {};
    lane.load_scorer(thread, head, room, head.of(a.q, a.q_places) + (counts ? row : 0) * a.q_places.row,
                     a.q_places.wide, counts, own);
    lane.load(thread, head.of(a.gradient, a.gradient_places) + (counts ? row : 0) * a.gradient_places.row,
              a.gradient_places.wide, a.e, counts, slope);
    const float delta = mean_slope(thread, head, lane, row, counts, slope);
    const float log_sum = counts ? a.log_sum[head.statistic(row)] : static_cast<float>(INFINITY);
    for_additive_keys(thread, head, room, draws, [&](int j, int64_t key) {
      float r[Lane::kOwn], product = 0;
      const float score = lane.score(thread, own, room, j, r);
      lane.for_channels(thread, room.second, j, [&](int i, float value) { product += slope[i] * value; });
      product = Lane::row_sum(thread, product);
      if (!AdditiveHead::counts(head.key_flags, key, a.m) || (a.causal && key > row)) return;
      const float of_score = thread.exp(score - log_sum) * (product * draws.factor(lane.row, j) - delta);
      XFORMER_UNROLL
      for (int i = 0; i < Lane::kOwn; ++i) {
        dw[i] += of_score * r[i];
        dq[i] += of_score * (r[i] - r[i] * r[i]);
      }
    });
    lane.for_channels(thread, room.factor_row(), 0, [&](int i, float factor) { dq[i] *= kAdditiveSlope * factor; });
    if (row < a.n) lane.store(thread, dq, a.d, a.dq + head.result(row, a.n, a.d));
    add_rows(thread, head, lane, room, dw);
  }

 private:
  // What softmax's gradient takes off, kept for the other program.
  template <class Thread>
  XFORMER_DEVICE float mean_slope(const Thread& thread, const AdditiveHead& head, const Lane& lane, int64_t row,
                                  bool counts, const float* slope) const {
    float made[Lane::kOwn], delta = 0;
    lane.load(thread, a.out + (counts ? head.result(row, a.n, a.e) : 0), a.e % kRun == 0, a.e, counts, made);
    XFORMER_UNROLL
    for (int i = 0; i < Lane::kOwn; ++i) delta += made[i] * slope[i];
    delta = Lane::row_sum(thread, delta);
    if (row < a.n && lane.part == 0) a.delta[head.statistic(row)] = delta;
    return delta;
  }

  // The block's part of the gradient of w: rows of a warp by exchanges, warps by way of shared memory.
  template <class Thread>
  XFORMER_DEVICE void add_rows(const Thread& thread, const AdditiveHead& head, const Lane& lane,
                               const AdditiveRoom<kWidth>& room, float* dw) const {
    const int warp = thread.index() / kWarp;
    XFORMER_UNROLL
    for (int i = 0; i < Lane::kOwn; ++i) dw[i] = lane_sum(thread, dw[i] * -2, 2, kWarp);
    thread.sync();
    if (thread.index() % kWarp < 2) {
      XFORMER_UNROLL
      for (int run = 0; run < Lane::kRuns; ++run)
        put_run(thread, dw + run * kRun, room.first.at(warp, lane.column(run)));
    }
    thread.sync();
    const int64_t tile = head.statistic(0) / a.n * tiles_of(a.n) + head.block.first / kTileSide;
    for (int c = thread.index(); c < a.d; c += kTileThreads) {
      float sum = 0;
      for (int i = 0; i < kTileThreads / kWarp; ++i) sum += *room.first.at(i, c);
      a.dw[tile * a.d + c] = sum;
    }
  }
};

template <int kWidth>
struct AdditiveKeyProgram {
  static constexpr int kThreads = kTileThreads, kResident = kWidth == 32 ? 3 : 2;
  using Lane = AdditiveLane<kWidth>;
  AdditiveArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const AdditiveRoom<kWidth> room(thread);
    const AdditiveHead head(a, head_block(a.h, thread.block(), a.m));
    const TileDraws draws(a.drop, room.draws);
    const Lane lane(thread);
    const int64_t key = head.block.first + lane.row;
    const bool counts = AdditiveHead::counts(head.key_flags, key, a.m);
    float own[Lane::kOwn], value[Lane::kOwn], dk[Lane::kOwn] = {}, dv[Lane::kOwn] = {};
    lane.load_scorer(thread, head, room, head.of(a.k, a.k_places) + (counts ? key : 0) * a.k_places.row,
                     a.k_places.wide, counts, own);
    lane.load(thread, head.of(a.v, a.v_places) + (counts ? key : 0) * a.v_places.row, a.v_places.wide, a.e, counts,
              value);
    const bool some = head.block.first < valid_end(thread, head.key_flags, a.m, room.ends);
    const int64_t end = some ? valid_end(thread, head.query_flags, a.n, room.ends) : 0;
    float *const log_sums = room.numbers, *const deltas = room.numbers + kTileSide;
    for (int64_t first = a.causal ? head.block.first : 0; first < end; first += kTileSide) {
      thread.sync();
      load_tile<kWidth>(thread, head.of(a.q, a.q_places), a.q_places, a.d, first, a.n, head.query_flags, room.first);
      load_tile<kWidth>(thread, head.of(a.gradient, a.gradient_places), a.gradient_places, a.e, first, a.n,
                        head.query_flags, room.second);
      draws.draw(thread, [&](int of_tile) { return head.statistic(first + of_tile) * a.m + head.block.first; });
      const int queries = static_cast<int>(end - first < kTileSide ? end - first : kTileSide);
      if (thread.index() < queries) {
        const int64_t place = head.statistic(first + thread.index());
        log_sums[thread.index()] = a.log_sum[place], deltas[thread.index()] = a.delta[place];
      }
      thread.sync();
      for (int i = 0; i < queries; ++i) {
        float r[Lane::kOwn], product = 0;
        const float score = lane.score(thread, own, room, i, r);
        lane.for_channels(thread, room.second, i, [&](int c, float slope) { product += slope * value[c]; });
        product = Lane::row_sum(thread, product);
        // A query that does not count has the log infinity.
        if (!counts || (a.causal && key > first + i)) continue;
        const float weight = thread.exp(score - log_sums[i]), factor = draws.factor(i, lane.row);
        const float kept = weight * factor, of_score = weight * (product * factor - deltas[i]);
        lane.for_channels(thread, room.second, i, [&](int c, float slope) { dv[c] += kept * slope; });
        XFORMER_UNROLL
        for (int c = 0; c < Lane::kOwn; ++c) dk[c] += of_score * (r[c] - r[c] * r[c]);
      }
    }
    if (key >= a.m) return;
    lane.for_channels(thread, room.factor_row(), 0, [&](int c, float factor) { dk[c] *= kAdditiveSlope * factor; });
    lane.store(thread, dk, a.d, a.dk + head.result(key, a.m, a.d));
    lane.store(thread, dv, a.e, a.dv + head.result(key, a.m, a.e));
  }
};

// launch(grid, program) of one pass, by the width of its heads: queries before keys.
template <class Launch>
void run_additive_attention(const AdditiveArguments& a, bool backward, const Launch& launch) {
  const auto run = [&](auto width) {
    constexpr int kWidth = decltype(width)::value;
    const auto grid = [&](int64_t rows) { return additive_grid<kWidth>(a.b * a.h, rows); };
    if (backward) {
      launch(grid(a.n), AdditiveQueryProgram<kWidth>{a});
      launch(grid(a.m), AdditiveKeyProgram<kWidth>{a});
    } else {
      launch(grid(a.n), AdditiveForwardProgram<kWidth>{a});
    }
  };
  if (a.d <= 32 && a.e <= 32) run(std::integral_constant<int, 32>());
  else run(std::integral_constant<int, kAdditiveWidest>());
}

}  // namespace xformer::kernels
