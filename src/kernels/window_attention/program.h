// Attention over windows (window_attention.h) as device programs. A block holds 64 rows of one head and residue in
// shared memory and walks over the extra keys and then the columns that these rows see, 64 at a time, with the tiles of
// attention's programs (device/softmax.h). The backward pass, in gradient_programs.h, adds nothing by atomics either.
#pragma once

#include "kernels/device/heads.h"
#include "kernels/device/softmax.h"
#include "kernels/window_attention/pattern.h"

namespace xformer::kernels {

inline constexpr int kWindowHeadWidest = 64;    // d and e; wider heads are left to plain operations
inline constexpr float kWindowLowest = -1e30f;  // lowest_log_sum() of floats

// What the scores of keys gain, [.., keys], from sample to sample and head to head as it says; null: nothing.
struct KeyGains {
  const float* data = nullptr;
  int64_t sample = 0, head = 0;
};

struct WindowArguments {
  ElementType type = ElementType::kFloat;  // of heads, outputs and gradients; not double
  ProductKind product = ProductKind::kFloat;
  WindowPattern pattern;
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  HeadPlaces q_places, k_places, v_places;
  void* out = nullptr;       // [b,n,h,e]
  float* log_sum = nullptr;  // [b,h,n]
  int64_t b = 0, h = 0;
  int d = 0, e = 0;
  float scale = 1;
  const bool* valid = nullptr;  // [b,n]; null: all are
  KeyGains gains;               // of the tokens
  DeviceDrop drop;

  // Extra keys: m of them, g for a row. `allowed` and `places` step from sample to sample and head to head as it says.
  const void *extra_k = nullptr, *extra_v = nullptr;
  HeadPlaces extra_k_places, extra_v_places;
  int64_t m = 0, g = 0;
  const bool* allowed = nullptr;  // [.., m]; null: all are
  int64_t allowed_sample = 0, allowed_head = 0;
  KeyGains extra_gains;
  const int64_t* places = nullptr;  // [..,t,g]; null: every row has all m
  int64_t places_head = 0;

  // Of the backward pass alone. The gradients dq, dk, dv are [b,n,h,d], [b,n,h,d], [b,n,h,e].
  const void* gradient = nullptr;
  HeadPlaces gradient_places;
  const float* log_sum_gradient = nullptr;  // [b,h,n]; null: zero
  float* delta = nullptr;                   // [b,h,n]: written by the pass over queries, read by that over keys
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  // Rows are divided into parts of so many tiles, with by_block the blocks; each leaves what the extra keys get of it,
  // [b,h,parts,g,2 width], the values' half behind the keys'; extra_dk, extra_dv are [b,m,h,d], [b,m,h,e].
  int64_t parts = 0;
  int part_tiles = 0;
  float* extra_sums = nullptr;
  void *extra_dk = nullptr, *extra_dv = nullptr;

  // The place of a row's first weight among all [b,h,r,t,c,g+w], extra keys first.
  [[nodiscard]] XFORMER_DEVICE int64_t weights_of(int64_t head, int64_t residue, int64_t row) const {
    return (head * pattern.rows() + residue * pattern.blocks * pattern.block + row) * (g + pattern.width());
  }
};

// Heads of up to 32, or up to 64.
[[nodiscard]] constexpr int window_width(int64_t d, int64_t e) { return d <= 32 && e <= 32 ? 32 : 64; }

// Rows of one sample's head.
struct WindowSource {
  const void* rows;
  RowPlaces places;
};

// Keys of a tile: extra ones from `first` on, or a residue's tokens.
struct WindowKeys {
  int first;
  bool extra;
};

// Who stands in a block's tile, in shared memory. There, and not in the registers that sums fill, is also what changes
// from tile to tile or is the same in all threads. What the first 64 threads write is of the row or key of their
// number.
struct WindowTile {
  int64_t first[kTileSide];            // where a query's weight of the tile's first key is among all
  int key[kTileSide];                  // rows of k and v, or of the extra ones; -1: none that counts
  float gain[kTileSide];               // what its product with a query gains: -infinity of none that counts
  int query[kTileSide];                // rows of q, likewise
  int from[kTileSide], to[kTileSide];  // the columns that a query sees, but for extra keys
  int start[kTileSide];                // where its columns begin, which may be before the first token
  int seen[kTileSide];                 // which of the tile's 64 keys a query sees: the first, and 256 times how many
  float log_sum[kTileSide], delta[kTileSide];  // of queries, in the backward pass
  WindowSource source[2];                      // of keys and values, or of queries and gradients: what is loaded next
  int head, b, h;                              // of all b h, and of a sample
  int tokens;                                  // of the sample, up to the last valid one
  WindowKeys keys;                             // of a block that keeps them
  Span tiles;                                  // of rows, where it does
  int part;                                    // of the rows, or a residue, which are its own

  // What the product of a query and a key gains: -infinity where the query does not see it.
  [[nodiscard]] XFORMER_DEVICE float gained(int query, int key_place) const {
    const auto place = static_cast<unsigned>(key_place - (seen[query] & 0xFF));
    return place < static_cast<unsigned>(seen[query] >> 8) ? gain[key_place] : -static_cast<float>(INFINITY);
  }
};

// `tiles`: those kept in shared memory.
[[nodiscard]] constexpr LaunchGrid window_grid(int64_t blocks, int width, int tiles) {
  const int64_t floats = int64_t{tiles} * kTileSide * shared_stride(width) + TileDraws::kFloats;
  return {blocks, floats * 4 + static_cast<int64_t>(sizeof(WindowTile)) + kTileThreads / kWarp * 4};
}
[[nodiscard]] constexpr LaunchGrid window_rows_grid(const WindowArguments& a, int width, int tiles) {
  return window_grid(a.b * a.h * a.pattern.row_tiles(), width, tiles);
}

// What lies where in shared memory with so many tiles of rows.
template <int kWidth, int kTiles>
struct WindowMemory {
  float* memory;

  template <class Thread>
  XFORMER_DEVICE explicit WindowMemory(const Thread& thread) : memory(static_cast<float*>(thread.shared())) {}

  static constexpr int kRows = kTileSide * shared_stride(kWidth);
  [[nodiscard]] XFORMER_DEVICE SharedRows rows(int i) const { return {memory + i * kRows, shared_stride(kWidth)}; }
  [[nodiscard]] XFORMER_DEVICE float* draws() const { return memory + kTiles * kRows; }
  [[nodiscard]] XFORMER_DEVICE WindowTile& tile() const {
    return *reinterpret_cast<WindowTile*>(draws() + TileDraws::kFloats);
  }
  [[nodiscard]] XFORMER_DEVICE int* ends() const { return reinterpret_cast<int*>(&tile() + 1); }
};

// What a block does with its tile; Value is the type of heads.
template <class Value>
struct WindowBlock {
  const WindowArguments& a;
  WindowTile& tile;

  // The first thing: which head it has.
  template <class Thread>
  XFORMER_DEVICE void begin(const Thread& thread, int64_t head, int* ends) const {
    const int64_t b = head / a.h;
    const int64_t tokens =
        valid_end(thread, a.valid == nullptr ? nullptr : a.valid + b * a.pattern.n, a.pattern.n, ends);
    if (thread.index() == 0) {
      tile.head = static_cast<int>(head), tile.b = static_cast<int>(b), tile.h = static_cast<int>(head % a.h);
      tile.tokens = static_cast<int>(tokens);
    }
    thread.sync();
  }

  // Its queries, in the backward pass with their gradients, which are loaded next.
  template <class Thread>
  XFORMER_DEVICE void set_queries(const Thread& thread, const WindowRows& rows, bool backward) const {
    const int i = thread.index();
    if (i >= kTileSide) return;
    const int end = a.pattern.tokens(rows.residue, tile.tokens), row = rows.from + i;
    const int there = row < rows.to ? token(rows.residue, row, end) : -1;
    const Span seen = a.pattern.keys(row, end);
    tile.query[i] = there;
    tile.from[i] = seen.from;
    tile.to[i] = seen.to;
    tile.start[i] = a.pattern.block_begin(row) - a.pattern.before;
    if (i == 0) tile.source[0] = source(a.q, a.q_places);
    if (!backward) return;
    if (i == 0) tile.source[1] = source(a.gradient, a.gradient_places);
    const float sum = there < 0 ? kWindowLowest : a.log_sum[statistics() + there];
    tile.log_sum[i] = sum == kWindowLowest ? static_cast<float>(INFINITY) : sum;
  }
  // What a key's product gains.
  [[nodiscard]] XFORMER_DEVICE float gain(bool extra, int key) const {
    const auto of = [&](const KeyGains& gains) {
      return gains.data == nullptr ? 0.0f : gains.data[tile.b * gains.sample + tile.h * gains.head + key] / a.scale;
    };
    return extra ? of(a.extra_gains) : of(a.gains);
  }
  // Its keys and values, likewise; `part`: their residue, or the block of the rows whose extra keys they are.
  template <class Thread>
  XFORMER_DEVICE void set_keys(const Thread& thread, const WindowKeys& keys, int part) const {
    const int i = thread.index();
    if (i >= kTileSide) return;
    const int key =
        keys.extra ? extra(part, keys.first + i) : token(part, keys.first + i, a.pattern.tokens(part, tile.tokens));
    tile.key[i] = key, tile.gain[i] = key < 0 ? -static_cast<float>(INFINITY) : gain(keys.extra, key);
    if (i > 0) return;
    tile.source[0] = keys.extra ? source(a.extra_k, a.extra_k_places) : source(a.k, a.k_places);
    tile.source[1] = keys.extra ? source(a.extra_v, a.extra_v_places) : source(a.v, a.v_places);
  }
  // What the queries, which are set, have to do with such keys.
  template <class Thread>
  XFORMER_DEVICE void set_seen(const Thread& thread, const WindowRows& rows, const WindowKeys& keys) const {
    const int i = thread.index();
    if (i >= kTileSide) return;
    tile.first[i] =
        a.weights_of(tile.head, rows.residue, rows.from + i) + keys.first + (keys.extra ? 0 : a.g - tile.start[i]);
    const auto within = [&](int column) {
      const int place = column - keys.first;
      return place < 0 ? 0 : place < kTileSide ? place : kTileSide;
    };
    const int from = keys.extra ? 0 : within(tile.from[i]), to = keys.extra ? kTileSide : within(tile.to[i]);
    tile.seen[i] = tile.query[i] < 0 || from >= to ? 0 : from | (to - from) << 8;
  }

  // Rows of source `i`: those of tile.key or tile.query.
  template <int kWidth, class Thread>
  XFORMER_DEVICE void load(const Thread& thread, int i, const int* rows, const SharedRows& into) const {
    // Sixteen bits go through registers: their places are found again each time, and take none during products.
    const int none = std::is_same_v<Value, float> ? 0 : thread.anew(0);
    load_rows<kWidth>(thread, static_cast<const Value*>(tile.source[i].rows) + none, tile.source[i].places,
                      i == 0 ? a.d : a.e, [&](int row) { return int64_t{rows[row + none]}; },
                      {into.values + none, into.stride});
  }
  template <class Thread>
  XFORMER_DEVICE void draw(const Thread& thread, const TileDraws& draws) const {
    draws.draw(thread, [&](int row) { return tile.first[row]; });
  }

  // A fragment of 16 of these rows, from row `first` of the tile on, to their tokens in a contiguous [b,n,h,width].
  template <int kTiles, class Thread>
  XFORMER_DEVICE void store(const Thread& thread, const float (*sum)[4], float factor0, float factor1,
                            const WindowRows& rows, int first, int width, void* to) const {
    const int64_t step = a.h * width;  // from token to token
    store_fragment<kTiles>(
        thread, sum, factor0, factor1,
        static_cast<Value*>(to) + (int64_t{tile.b} * a.pattern.n + rows.residue) * step + int64_t{tile.h} * width,
        step * a.pattern.dilation, width, rows.from + first, rows.to);
  }

  // Where the head's numbers of rows begin in [b,h,n].
  [[nodiscard]] XFORMER_DEVICE int64_t statistics() const { return int64_t{tile.head} * a.pattern.n; }

 private:
  [[nodiscard]] XFORMER_DEVICE WindowSource source(const void* x, const HeadPlaces& places) const {
    return {static_cast<const Value*>(x) + tile.b * places.sample + tile.h * places.head, places};
  }
  // The token of a residue, -1 where it does not count.
  [[nodiscard]] XFORMER_DEVICE int token(int residue, int i, int end) const {
    const int token = a.pattern.token(residue, i, end);
    return token >= 0 && (a.valid == nullptr || a.valid[int64_t{tile.b} * a.pattern.n + token]) ? token : -1;
  }
  // The row of extra_k that is the extra key `slot` of a block's rows, likewise.
  [[nodiscard]] XFORMER_DEVICE int extra(int block, int slot) const {
    if (slot >= a.g) return -1;
    const int64_t place = a.places == nullptr ? slot : a.places[tile.h * a.places_head + block * a.g + slot];
    const bool counts =
        place >= 0 && (a.allowed == nullptr || a.allowed[tile.b * a.allowed_sample + tile.h * a.allowed_head + place]);
    return counts ? static_cast<int>(place) : -1;
  }
};

// visit() with the keys and values of each tile in turn that the rows see, and the draws, in shared memory.
template <int kWidth, class Value, class Thread, class Visit>
XFORMER_DEVICE void for_window_keys(const Thread& thread, const WindowBlock<Value>& block, const WindowRows& rows,
                                    const SharedRows& k, const SharedRows& v, const TileDraws& draws,
                                    const Visit& visit) {
  const WindowArguments& a = block.a;
  const int end = a.pattern.tokens(rows.residue, block.tile.tokens), behind = rows.to < end ? rows.to : end;
  if (rows.from >= behind) return;
  const Span near{a.pattern.keys(rows.from, end).from, a.pattern.keys(behind - 1, end).to};
  WindowKeys keys{0, a.g > 0};
  if (!keys.extra) keys.first = near.from;
  while (keys.extra || keys.first < near.to) {
    thread.sync();
    block.set_keys(thread, keys, keys.extra ? rows.block : rows.residue);
    block.set_seen(thread, rows, keys);
    thread.sync();
    block.template load<kWidth>(thread, 0, block.tile.key, k);
    block.template load<kWidth>(thread, 1, block.tile.key, v);
    block.draw(thread, draws);
    thread.sync();
    visit();
    keys.first += kTileSide;
    if (keys.extra && keys.first >= a.g) keys = {near.from, false};
  }
}

template <class Value, ProductKind kKind, int kWidth>
struct WindowAttentionForwardProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2, kShared = 3;
  static constexpr int kTiles = kTileSide / kTileColumns, kOutTiles = kWidth / kTileColumns;
  WindowArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const WindowMemory<kWidth, kShared> memory(thread);
    const SharedRows q = memory.rows(0), k = memory.rows(1), v = memory.rows(2);
    WindowTile& tile = memory.tile();
    const WindowBlock<Value> block{a, tile};
    const int row_tiles = a.pattern.row_tiles();
    const WindowRows rows = a.pattern.row_tile(static_cast<int>(thread.block() % row_tiles));
    block.begin(thread, thread.block() / row_tiles, memory.ends());
    block.set_queries(thread, rows, /*backward=*/false);
    thread.sync();
    block.template load<kWidth>(thread, 0, tile.query, q);
    const int warp_row = thread.index() / kWarp * kTileRows;
    const TileDraws draws(a.drop, memory.draws());
    SoftmaxRows<kOutTiles> found;
    for_window_keys<kWidth>(thread, block, rows, k, v, draws, [&] {
      float score[kTiles][4] = {};
      multiply_rows<kKind, kWidth, kTiles>(thread, q, warp_row, k, score);
      const auto gained = [&](int query, int key) { return tile.gained(query, key); };
      found.template weigh<kTiles>(thread, a.scale, draws, warp_row, gained, score);
      multiply_weights<kKind, kTiles, kOutTiles>(thread, score, v, found.out);
    });
    const FragmentPlace place(thread);
    float inverse[2];
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const auto total = found.total(thread, half);
      const int row = warp_row + place.row + 8 * half;
      const bool counts = tile.query[row] >= 0 && total.log_sum != static_cast<float>(INFINITY);
      inverse[half] = counts ? total.inverse : 0.0f;
      if (rows.from + row < rows.to && place.pair == 0)
        a.log_sum[block.statistics() + rows.residue + (rows.from + row) * a.pattern.dilation] =
            counts ? total.log_sum : kWindowLowest;
    }
    block.template store<kOutTiles>(thread, found.out, inverse[0], inverse[1], rows, warp_row, a.e, a.out);
  }
};

}  // namespace xformer::kernels
