// The backward pass of hashed attention on a device: a launch over the slots as queries, for dq, one over the slots as
// keys, for dk and dv, and one that adds up every token's rounds and takes dk through the keys' length to dq.
#pragma once

#include "kernels/hashed_attention/program.h"

namespace xformer::kernels {

// dq of 64 slots, and delta, a token's sum of out and its gradient.
template <ProductKind kKind, int kWidth>
struct HashedAttentionQueryProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2, kShared = 4;
  static constexpr int kTiles = kTileSide / kTileColumns, kOutTiles = kWidth / kTileColumns;
  HashedArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const HashedMemory<kWidth, kShared> memory(thread);
    const SharedRows q = memory.rows(0), gradient = memory.rows(1), k = memory.rows(2), v = memory.rows(3);
    HashedTile& tile = memory.tile();
    const HashedBlock block{a, tile};
    block.begin(thread, /*of_keys=*/false);
    block.set_queries(thread, tile.begin, a.total(), /*backward=*/true);
    thread.sync();
    if (!block.any(thread, tile.query)) return;
    block.template load<kWidth>(thread, a.q, a.q_places, a.d, tile.query, q);
    block.template load<kWidth>(thread, a.gradient, a.gradient_places, a.e, tile.query, gradient);
    thread.sync();
    if (thread.index() < kTileSide) {
      const int i = thread.index(), token = tile.query[i];
      float total = 0;
      if (token >= 0) {
        const float* const out = a.out + ((int64_t{tile.sample} * a.n + token) * a.h + tile.of_sample) * a.e;
        for (int c = 0; c < a.e; ++c) total += out[c] * *gradient.at(i, c);
        if (tile.begin + i < a.slots) a.delta[block.statistic(token)] = total;
      }
      tile.delta[i] = total;
    }
    const int warp_row = thread.index() / kWarp * kTileRows;
    const TileDraws draws(a.drop, memory.draws());
    float sum[kOutTiles][4] = {};
    for (int key = tile.others.from; key < tile.others.to; key += kTileSide) {
      thread.sync();
      block.set_keys(thread, key, tile.others.to);
      block.set_seen(thread, tile.begin, key);
      thread.sync();
      if (!block.any(thread, tile.key)) continue;
      block.template load_keys<kWidth>(thread, k);
      block.template load<kWidth>(thread, a.v, a.v_places, a.e, tile.key, v);
      block.draw(thread, draws);
      thread.sync();
      float weight[kTiles][4] = {}, slope[kTiles][4] = {};
      multiply_rows<kKind, kWidth, kTiles>(thread, q, warp_row, k, weight);
      multiply_rows<kKind, kWidth, kTiles>(thread, gradient, warp_row, v, slope);
      block.template weigh<false, kTiles>(thread, draws, warp_row, weight, slope);
      multiply_weights<kKind, kTiles, kOutTiles>(thread, slope, k, sum);
    }
    block.template store<kOutTiles>(thread, sum, warp_row, tile.query, a.d, a.dq_rows);
  }
};

// dk, of keys at their length, and dv of 64 slots, from those that see one of them.
template <ProductKind kKind, int kWidth>
struct HashedAttentionKeyProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2, kShared = 4;
  static constexpr int kTiles = kTileSide / kTileColumns, kOutTiles = kWidth / kTileColumns;
  HashedArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const HashedMemory<kWidth, kShared> memory(thread);
    const SharedRows k = memory.rows(0), v = memory.rows(1), q = memory.rows(2), gradient = memory.rows(3);
    HashedTile& tile = memory.tile();
    const HashedBlock block{a, tile};
    block.begin(thread, /*of_keys=*/true);
    block.set_keys(thread, tile.begin, a.total());
    thread.sync();
    if (!block.any(thread, tile.key)) return;
    block.template load_keys<kWidth>(thread, k);
    block.template load<kWidth>(thread, a.v, a.v_places, a.e, tile.key, v);
    const int warp_row = thread.index() / kWarp * kTileRows;
    const TileDraws draws(a.drop, memory.draws());
    float sum[kOutTiles][4] = {}, value_sum[kOutTiles][4] = {};
    for (int query = tile.others.from; query < tile.others.to; query += kTileSide) {
      thread.sync();
      block.set_queries(thread, query, tile.others.to, /*backward=*/true);
      block.set_seen(thread, query, tile.begin);
      if (thread.index() < kTileSide) {
        const int token = tile.query[thread.index()];
        tile.delta[thread.index()] = token < 0 ? 0.0f : a.delta[block.statistic(token)];
      }
      thread.sync();
      if (!block.any(thread, tile.query)) continue;
      block.template load<kWidth>(thread, a.q, a.q_places, a.d, tile.query, q);
      block.template load<kWidth>(thread, a.gradient, a.gradient_places, a.e, tile.query, gradient);
      block.draw(thread, draws);
      thread.sync();
      float weight[kTiles][4] = {}, slope[kTiles][4] = {};
      multiply_rows<kKind, kWidth, kTiles>(thread, k, warp_row, q, weight);
      multiply_rows<kKind, kWidth, kTiles>(thread, v, warp_row, gradient, slope);
      block.template weigh<true, kTiles>(thread, draws, warp_row, weight, slope);
      multiply_weights<kKind, kTiles, kOutTiles>(thread, slope, q, sum);
      multiply_weights<kKind, kTiles, kOutTiles>(thread, weight, gradient, value_sum);
    }
    block.template store<kOutTiles>(thread, sum, warp_row, tile.key, a.d, a.dk_rows);
    block.template store<kOutTiles>(thread, value_sum, warp_row, tile.key, a.e, a.dv_rows);
  }
};

// The gradients of q and v from those of all rounds. Of k = q / |q| comes the part across k, divided by |q|.
template <int kWidth>
struct HashedAttentionGradientProgram {
  static constexpr int kThreads = kTileThreads, kResident = 6;
  HashedArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    using Token = HashedToken<kWidth>;
    const Token own(thread, a);
    float dv[kRun], dq[kRun], dk[kRun], q[kRun];
    own.sum(thread, a.dv_rows, a.e, dv);
    own.store(thread, dv, a.e, a.dv);
    own.sum(thread, a.dq_rows, a.d, dq);
    own.sum(thread, a.dk_rows, a.d, dk);
    const HeadPlaces& places = a.q_places;
    // Whatever lies there, also NaN, is not read of a token that does not count.
    load_run(thread,
             a.q + own.head / a.h * places.sample + own.head % a.h * places.head + own.token * places.row + own.column,
             own.counts ? run_length(a.d - own.column) : 0, places.wide, q);
    float squares = 0, along = 0;
    XFORMER_UNROLL
    for (int i = 0; i < kRun; ++i) squares += q[i] * q[i], along += q[i] * dk[i];
    const float factor = key_factor(a, lane_sum(thread, squares, 1, Token::kLanes));
    along = lane_sum(thread, along, 1, Token::kLanes) * factor * factor;
    XFORMER_UNROLL
    for (int i = 0; i < kRun; ++i) dq[i] += factor * (dk[i] - q[i] * along);
    own.store(thread, dq, a.d, a.dq);
  }
};

// launch(grid, program) for the forward pass, then likewise for the parts of the backward pass, one behind the other.
template <ProductKind kKind, int kWidth, class Launch>
void run_hashed_attention(const HashedArguments& a, bool backward, const Launch& launch) {
  if (backward) {
    launch(hashed_grid(a, kWidth, 4), HashedAttentionQueryProgram<kKind, kWidth>{a});
    launch(hashed_grid(a, kWidth, 4), HashedAttentionKeyProgram<kKind, kWidth>{a});
    launch(HashedToken<kWidth>::grid(a), HashedAttentionGradientProgram<kWidth>{a});
    return;
  }
  if (a.sorting.lists > 0) launch(HashedOrderProgram::grid(a.sorting), HashedOrderProgram{a.sorting});
  launch(hashed_grid(a, kWidth, 3), HashedAttentionForwardProgram<kKind, kWidth>{a});
  launch(HashedToken<kWidth>::grid(a), HashedAttentionRoundsProgram<kWidth>{a});
}

template <class Launch>
void run_hashed_attention(const HashedArguments& a, bool backward, const Launch& launch) {
  const bool narrow = hashed_width(a.d, a.e) == 32;
  if (a.product == ProductKind::kTf32)
    return narrow ? run_hashed_attention<ProductKind::kTf32, 32>(a, backward, launch)
                  : run_hashed_attention<ProductKind::kTf32, 64>(a, backward, launch);
  narrow ? run_hashed_attention<ProductKind::kFloat, 32>(a, backward, launch)
         : run_hashed_attention<ProductKind::kFloat, 64>(a, backward, launch);
}

}  // namespace xformer::kernels
