// Attention (attention.h) as device programs: a block has 64 rows of one head, its four warps 16 of them each, and
// walks over the tiles of 64 that these rows see (Dao et al., "FlashAttention", 2022; the passes as in
// FlashAttention-2). These are read from planes (planes.h), which are made first. Nothing is added by atomics: the
// backward pass goes once over rows of queries, for dq, and once over rows of keys, for dk and dv. Where few rows make
// few blocks, several share what a row sees, and their results are put together afterwards, in order (Dao et al.,
// "Flash-Decoding", 2023). Softmax and sums are in float.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/attention/planes.h"
#include "kernels/attention/tile_weights.h"
#include "kernels/device/heads.h"

namespace xformer::kernels {

inline constexpr int kAttentionTile = kTileSide;
inline constexpr int kAttentionWidest = 64;  // d and e; wider heads are left to plain operations

struct AttentionArguments {
  ElementType type = ElementType::kFloat;  // of heads, outputs and gradients; not double
  ProductKind product = ProductKind::kFloat;
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  HeadPlaces q_places, k_places, v_places;
  void* out = nullptr;       // [b,n,h,e]
  float* log_sum = nullptr;  // [b,h,n]; +infinity for rows that see no key or do not count
  // Of several parts of the keys, else null: the same of each part on its own, [parts,b,n,h,e] and [parts,b,h,n].
  float *part_out = nullptr, *part_log_sum = nullptr;
  int64_t b = 0, h = 0, n = 0, m = 0;
  int d = 0, e = 0;
  float scale = 1;
  bool causal = false;
  const bool *key_valid = nullptr, *query_valid = nullptr;  // [b,m], [b,n]; null: all are valid
  DeviceDrop drop;
  // Planes of k, v and, backwards, of q and the gradient, and with what they were multiplied, [4,b,h].
  const void* planes[4] = {};
  const float* factors = nullptr;
  // Which weights dropout keeps, as the forward pass found and the backward pass reads it, or null: both draw. For
  // every head and tile of its queries the tiles of keys, TileKept::kWords each; heads have tiles_of() of both.
  uint32_t* kept = nullptr;

  // Of the backward pass alone. The gradients dq, dk, dv are [b,n,h,d], [b,m,h,d], [b,m,h,e].
  const void* gradient = nullptr;
  HeadPlaces gradient_places;
  float* delta = nullptr;  // [b,h,n]
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  // Of several parts of the keys, or of the queries, in the place of these: parts to be added, each of a dq, or of a dk
  // and behind it a dv.
  float *dq_parts = nullptr, *dk_parts = nullptr;
};

// Heads of up to 32, or up to 64.
[[nodiscard]] constexpr int attention_width(int64_t d, int64_t e) { return d <= 32 && e <= 32 ? 32 : 64; }

// How what rows see is divided among their blocks: parts of four tiles or more, since each part costs a pass over its
// results. The same on every device.
[[nodiscard]] constexpr RowDivision attention_division(int64_t heads, int64_t rows, int64_t seen) {
  const int64_t tiles = std::max<int64_t>(tiles_of(seen), 1), blocks = std::max<int64_t>(heads * tiles_of(rows), 1);
  const int64_t most = std::clamp<int64_t>(kSpreadBlocks / blocks, 1, std::max<int64_t>(tiles / 4, 1));
  const int64_t part_tiles = (tiles + most - 1) / most;
  return {(tiles + part_tiles - 1) / part_tiles, part_tiles};
}

// Planes of attention, by number.
enum { kQueryPlane, kKeyPlane, kValuePlane, kGradientPlane };

// Where in shared memory a pass has what: its own tiles, of the tiles that it walks over two, of bits of kept weights,
// and of numbers of 64 queries, then a number for each warp. All of a tile but its own stand twice, so that the next
// come while these are read, unless that would leave a multiprocessor of sm_80 with one block.
template <class Tile, int kOwnTiles, bool kNumbers>
struct AttentionMemory {
  static constexpr int kPlaces = Tile::kBytes <= 8192 ? 2 : 1;
  static constexpr int kOthers = kOwnTiles * Tile::kBytes, kKept = kOthers + 2 * kPlaces * Tile::kBytes;
  static constexpr int kQueryNumbers = kKept + kPlaces * TileKept::kWords * 4;
  static constexpr int kEnds =
      kQueryNumbers + (kNumbers ? kPlaces * kTileSide * static_cast<int>(sizeof(QueryNumbers)) : 0);
  static constexpr int kBytes = kEnds + kTileThreads / kWarp * 4;
  char* memory;

  // One of two kinds of tiles.
  [[nodiscard]] XFORMER_DEVICE char* other(int kind, int turn) const {
    return memory + kOthers + (2 * turn + kind) * Tile::kBytes;
  }
  [[nodiscard]] XFORMER_DEVICE TileKept kept(int turn) const {
    return TileKept(reinterpret_cast<uint32_t*>(memory + kKept) + turn * TileKept::kWords);
  }
  [[nodiscard]] XFORMER_DEVICE QueryNumbers* numbers(int turn) const {
    return reinterpret_cast<QueryNumbers*>(memory + kQueryNumbers) + turn * kTileSide;
  }
  [[nodiscard]] XFORMER_DEVICE int* ends() const { return reinterpret_cast<int*>(memory + kEnds); }
};

[[nodiscard]] constexpr LaunchGrid attention_grid(int64_t heads, int64_t rows, int64_t seen, int64_t shared_bytes) {
  return {heads * tiles_of(rows) * attention_division(heads, rows, seen).parts, shared_bytes};
}

// What a block has where several share what rows see.
struct SeenPart {
  int number, first, end;  // which part, and from where to where it goes
  int64_t block;           // among those of the same part
  bool alone;

  XFORMER_DEVICE SeenPart(int64_t heads, int64_t rows, int64_t seen, int64_t of) {
    const RowDivision division = attention_division(heads, rows, seen);
    const int64_t blocks = heads * tiles_of(rows), part_rows = division.part_tiles * kAttentionTile;
    number = static_cast<int>(of / blocks), block = of % blocks;
    first = static_cast<int>(number * part_rows);
    end = static_cast<int>(std::min(first + part_rows, seen));
    alone = division.parts == 1;
  }
};

// Where the weight of a query and a key is among all [b,h,n,m].
[[nodiscard]] XFORMER_DEVICE int64_t weight_place(const AttentionArguments& a, const HeadBlock& block, int64_t query,
                                                  int64_t key) {
  return ((block.b * a.h + block.h) * a.n + query) * a.m + key;
}

// Which weights of a tile count in the warp's rows g and g + 8, of queries or, with kKeys, of keys. `first`: the number
// of the tile's first column, `row` of the warp's first row; valid and `end` are the keys'. Columns behind the last
// query seem to count here: their sum of weights is infinite, so that none of them weighs anything.
template <bool kKeys>
struct WarpSeen {
  RowBits rows[kTileSide / kWarp][2];  // of 32 columns each
  bool whole;                          // all do, in all lanes

  template <class Thread>
  XFORMER_DEVICE WarpSeen(const Thread& thread, const FragmentPlace& place, bool causal, const bool* valid, int first,
                          int end, int row) {
    // A query sees itself and what comes before.
    whole = valid == nullptr && (kKeys ? row + kTileRows <= end && !(causal && first < row + kTileRows - 1)
                                       : first + kTileSide <= end && !(causal && first + kTileSide - 1 > row));
    if (whole) return;
    const uint64_t keys = kKeys ? ~uint64_t{0} : seen_keys(thread, valid, first, end);
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int own = row + place.row + 8 * half;
      uint64_t columns = keys;
      if constexpr (kKeys) {
        if (own >= end || (valid != nullptr && !valid[own])) columns = 0;
        if (causal) columns &= ~columns_before(own - first);
      } else if (causal) {
        columns &= columns_before(own + 1 - first);
      }
      rows[0][half] = {place, static_cast<uint32_t>(columns)};
      rows[1][half] = {place, static_cast<uint32_t>(columns >> kWarp)};
    }
  }

  // From a tile of columns on.
  XFORMER_DEVICE void take(int tile, RowBits (&into)[2]) const {
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) into[half] = rows[0][half].from(tile, rows[1][half]);
  }
};

// Where the kept weights of a head's tile of queries and tile of keys lie.
[[nodiscard]] XFORMER_DEVICE uint32_t* kept_place(const AttentionArguments& a, int64_t head, int64_t query_tile,
                                                  int64_t key_tile) {
  return a.kept + ((head * tiles_of(a.n) + query_tile) * tiles_of(a.m) + key_tile) * int64_t{TileKept::kWords};
}

template <class Value, ProductKind kKind, int kWidth>
struct AttentionForwardProgram {
  static constexpr int kTerms = plane_terms(kKind);
  using Tile = HalfTile<kWidth, kTerms>;
  using Memory = AttentionMemory<Tile, 1, false>;
  static constexpr int kThreads = kTileThreads, kResident = kWidth == 32 ? 3 : 2;
  static constexpr int kTiles = kAttentionTile / kTileColumns, kOutTiles = kWidth / kTileColumns;
  static constexpr int kAtOnce = 4;  // tiles of columns: registers are short
  static constexpr int kPlaces = Memory::kPlaces, kSharedBytes = Memory::kBytes;
  AttentionArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const Memory memory{static_cast<char*>(thread.shared())};
    const SeenPart part(a.b * a.h, a.n, a.m, thread.block());
    const HeadBlock block = head_block(a.h, part.block, a.n);
    const int64_t head = block.b * a.h + block.h;
    const bool* key_valid = a.key_valid == nullptr ? nullptr : a.key_valid + block.b * a.m;
    const bool* query_valid = a.query_valid == nullptr ? nullptr : a.query_valid + block.b * a.n;
    int end = std::min(static_cast<int>(trimmed_end(thread, key_valid, a.m, memory.ends())), part.end);
    const int64_t query_end = trimmed_end(thread, query_valid, a.n, memory.ends());
    const auto first_row = static_cast<int>(block.first);
    if (first_row >= query_end) end = 0;
    if (a.causal && end > first_row + kTileSide) end = first_row + kTileSide;
    const FragmentPlace place(thread);
    const int warp_row = thread.index() / kWarp * kTileRows;
    const DeviceDraws draws(a.drop);
    // What comes before a tile of keys is used.
    const auto prepare = [&](int key, int turn) {
      if (key < end) {
        const int64_t tile = head * tiles_of(a.m) + key / kTileSide;
        send_plane<Tile>(thread, a.planes[kKeyPlane], tile, memory.other(0, turn));
        send_plane<Tile>(thread, a.planes[kValuePlane], tile, memory.other(1, turn));
        if (draws.threshold > 0) memory.kept(turn).draw(thread, draws, weight_place(a, block, block.first, key), a.m);
      }
      thread.end_copies();
    };
    if (draws.threshold == 0) {
      XFORMER_UNROLL
      for (int turn = 0; turn < kPlaces; ++turn) memory.kept(turn).keep_all(thread);
    }
    prepare(part.first, 0);
    // Its own queries become a plane's tile here.
    TileRuns<kWidth, kThreads> own_runs;
    const float query_factor = plane_factor(own_runs.load(
        thread, at_head<Value>(a.q, a.q_places, block), a.q_places, a.d, first_row,
        [&](int64_t row) { return row < query_end && (query_valid == nullptr || query_valid[row]); },
        reinterpret_cast<float*>(memory.ends())));
    own_runs.template store<kTerms>(thread, query_factor,
                                    [&](int at, const uint32_t* words) { thread.put16(memory.memory + at, words); });
    thread.sync();
    HalfRows<kWidth, kTerms> queries;
    queries.load(thread, memory.memory, warp_row);
    const float scale = a.scale * kLog2E / query_factor / a.factors[kKeyPlane * a.b * a.h + head];
    WeightRows<kOutTiles> rows;
    int turn = 0;
    for (int key = part.first; key < end; key += kAttentionTile, turn = kPlaces - 1 - turn) {
      if (kPlaces == 1 && key > part.first) {
        thread.sync();
        prepare(key, 0);
      }
      thread.template await_copies<0>();
      thread.sync();
      if constexpr (kPlaces == 2) prepare(key + kAttentionTile, 1 - turn);
      const TileKept drops = memory.kept(turn);
      if (a.kept != nullptr && thread.index() < TileKept::kWords / 4) {
        uint32_t four[4];
        thread.load16(drops.words() + 4 * thread.index(), four);
        thread.store16(kept_place(a, head, first_row / kTileSide, key / kTileSide) + 4 * thread.index(), four);
      }
      const WarpSeen<false> seen(thread, place, a.causal, key_valid, key, end, first_row + warp_row);
      XFORMER_UNROLL_NEVER  // else what is read ahead takes all registers
          for (int tile = 0; tile < kTiles; tile += kAtOnce) {
        static_assert(kAtOnce == RowBits::kTiles);
        RowBits seen_here[2], kept[2];
        seen.take(tile, seen_here);
        XFORMER_UNROLL
        for (int half = 0; half < 2; ++half)
          kept[half] = {place, drops.row(warp_row + place.row + 8 * half, tile / RowBits::kTiles)};
        float score[kAtOnce][4] = {};
        const RowProduct<kWidth, kTerms> scores{queries, memory.other(0, turn), score};
        multiply_rows<kAtOnce>(thread, {scores}, tile * kTileColumns);
        rows.template weigh<kAtOnce>(thread, scale, seen.whole, seen_here, kept, score);
        multiply_weights<kAtOnce, kWidth, kTerms>(thread, score, memory.other(1, turn), tile * kTileColumns, rows.out);
      }
    }
    float inverse[2];
    float* const log_sum = part.alone ? a.log_sum : a.part_log_sum + part.number * a.b * a.h * a.n;
    const float kept_scale = survivors_scale(a.drop) / a.factors[kValuePlane * a.b * a.h + head];
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const auto total = rows.total(thread, half);
      const int own = first_row + warp_row + place.row + 8 * half;
      const bool counts = own < query_end && (query_valid == nullptr || query_valid[own]);
      inverse[half] = counts ? total.inverse * kept_scale : 0.0f;
      if (own < a.n && place.pair == 0)
        log_sum[head * a.n + own] = counts ? total.log_sum : static_cast<float>(INFINITY);
    }
    const auto store = [&](auto* out) {
      store_fragment<kOutTiles>(thread, rows.out, inverse[0], inverse[1], out + (block.b * a.n * a.h + block.h) * a.e,
                                a.h * a.e, a.e, first_row + warp_row, a.n);
    };
    part.alone ? store(static_cast<Value*>(a.out)) : store(a.part_out + part.number * a.b * a.n * a.h * a.e);
  }
};

// One attention over all keys from those over parts of them: a few lanes of a warp have a row.
template <class Value>
struct AttentionJoinProgram {
  static constexpr int kThreads = 256, kResident = 4;
  AttentionArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr float kNone = INFINITY;
    const int lanes = row_lanes(a.e), lane = thread.index() % lanes;
    const int64_t row = thread.block() * (kThreads / lanes) + thread.index() / lanes, rows = a.b * a.n * a.h;
    if (row >= rows) return;
    const int64_t place = (row / a.h / a.n * a.h + row % a.h) * a.n + row / a.h % a.n;
    const int64_t parts = attention_division(a.b * a.h, a.n, a.m).parts;
    const auto log_of = [&](int64_t part) { return a.part_log_sum[part * rows + place]; };
    float largest = -kNone, sum = 0;
    for (int64_t part = 0; part < parts; ++part)
      if (log_of(part) != kNone && log_of(part) > largest) largest = log_of(part);
    const auto share = [&](int64_t part) { return log_of(part) == kNone ? 0.0f : thread.exp(log_of(part) - largest); };
    for (int64_t part = 0; part < parts; ++part) sum += share(part);
    const float inverse = sum == 0 ? 0.0f : 1 / sum;
    if (lane == 0) a.log_sum[place] = sum == 0 ? kNone : largest + std::log(sum);
    const bool wide = a.e % kRun == 0;
    for (int column = lane * kRun; column < a.e; column += lanes * kRun) {
      const int width = run_length(a.e - column);
      float out[kRun] = {}, more[kRun];
      for (int64_t part = 0; part < parts; ++part) {
        load_run(thread, a.part_out + (part * rows + row) * a.e + column, width, wide, more);
        XFORMER_UNROLL
        for (int i = 0; i < kRun; ++i) out[i] += share(part) * inverse * more[i];
      }
      store_run(thread, out, width, wide, static_cast<Value*>(a.out) + row * a.e + column);
    }
  }
};

}  // namespace xformer::kernels
