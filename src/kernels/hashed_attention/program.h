// Hashed attention (hashed_attention.h) as device programs. The slots of all rounds are one row of them, by bucket
// (order_programs.h); a block has 64 in shared memory, gathers their tokens' rows and walks over the slots of their
// chunks and the chunk before the first, 64 at a time, with the tiles of attention's programs (device/softmax.h). Every
// round leaves its sums at the tokens, and one more launch adds these up in order. The backward pass, in
// gradient_programs.h, does likewise: nothing is added by atomics.
#pragma once

#include "kernels/device/heads.h"
#include "kernels/device/softmax.h"
#include "kernels/hashed_attention/order_programs.h"

namespace xformer::kernels {

inline constexpr int kHashedHeadWidest = 64;              // d and e; wider heads are left to plain operations
inline constexpr int64_t kHashedMost = int64_t{1} << 28;  // heads, and slots of all rounds, which do not leave an int
inline constexpr float kAloneLogit = -1e5f;               // kSelfLogit

struct HashedArguments {
  ProductKind product = ProductKind::kFloat;
  const float *q = nullptr, *v = nullptr;
  HeadPlaces q_places, v_places;
  HashedOrderArguments sorting;  // of the forward pass; no lists without buckets
  const int* order = nullptr;    // [b,h,r,slots]; null: one round, every token in its place
  const bool* valid = nullptr;   // [b,n]; null: all are
  int b = 0, h = 0, n = 0, d = 0, e = 0;
  int rounds = 1, slots = 0, chunk = 0, before = 0;  // the last: keys that are seen of the chunk before
  float key_floor = 0;                               // what |q|^2 gains
  DeviceDrop drop;

  // Each round's largest logits and its sums of exp(logit - largest), without values and with them.
  float *shifts = nullptr, *sums = nullptr;                // [b,h,r,n]
  float* rows = nullptr;                                   // [b,h,r,n,e]
  float *out = nullptr, *shift = nullptr, *sum = nullptr;  // [b,n,h,e], [b,h,n]: those of all rounds

  // Of the backward pass alone.
  const float* gradient = nullptr;
  HeadPlaces gradient_places;
  float* delta = nullptr;                                            // [b,h,n]: written by the pass over queries
  float *dq_rows = nullptr, *dk_rows = nullptr, *dv_rows = nullptr;  // [b,h,r,n,d] and [b,h,r,n,e], of each round
  float *dq = nullptr, *dv = nullptr;                                // [b,n,h,d], [b,n,h,e]

  [[nodiscard]] XFORMER_DEVICE constexpr int total() const { return rounds * slots; }
  [[nodiscard]] XFORMER_DEVICE constexpr int width() const { return before + chunk; }
};

// Heads of up to 32, or up to 64.
[[nodiscard]] constexpr int hashed_width(int64_t d, int64_t e) { return d <= 32 && e <= 32 ? 32 : 64; }

// Slots of a head; those before the first are the last ones, and those behind the last the first ones.
struct HashedSpan {
  int from, to;
};

// Who stands in a block's tile, in shared memory. There, and not in the registers that sums fill, is also what is the
// same in all threads. What the first 64 threads write is of the query or key of their number.
struct HashedTile {
  int64_t first[kTileSide];  // where a query's weight of the tile's first key is among all [b,h,r slots / c,c,2 c]
  int query[kTileSide], key[kTileSide];  // tokens; -1: none that counts
  int seen[kTileSide];                   // which of the tile's 64 keys a query sees: the first, and 256 times how many
  // Of queries, in the backward pass; `self`: the logit of a token with itself.
  float log_sum[kTileSide], delta[kTileSide], self[kTileSide];

  int head, sample, of_sample, begin;  // of all b h; the sample, and which of its heads that is; the block's first slot
  HashedSpan others;                   // keys that the block's slots see, or queries that see one of them

  // Whether a query sees a key.
  [[nodiscard]] XFORMER_DEVICE bool sees(int query, int key_place) const {
    const auto place = static_cast<unsigned>(key_place - (seen[query] & 0xFF));
    return key[key_place] >= 0 && place < static_cast<unsigned>(seen[query] >> 8);
  }
};

// A block for each 64 slots; `tiles`: those kept in shared memory.
[[nodiscard]] constexpr LaunchGrid hashed_grid(const HashedArguments& a, int width, int tiles) {
  const int64_t floats = int64_t{tiles} * kTileSide * shared_stride(width) + TileDraws::kFloats;
  return {int64_t{a.b} * a.h * tiles_of(int64_t{a.rounds} * a.slots),
          floats * 4 + static_cast<int64_t>(sizeof(HashedTile))};
}

// What lies where in shared memory with so many tiles of rows.
template <int kWidth, int kTiles>
struct HashedMemory {
  float* memory;

  template <class Thread>
  XFORMER_DEVICE explicit HashedMemory(const Thread& thread) : memory(static_cast<float*>(thread.shared())) {}

  static constexpr int kRows = kTileSide * shared_stride(kWidth);
  [[nodiscard]] XFORMER_DEVICE SharedRows rows(int i) const { return {memory + i * kRows, shared_stride(kWidth)}; }
  [[nodiscard]] XFORMER_DEVICE float* draws() const { return memory + kTiles * kRows; }
  [[nodiscard]] XFORMER_DEVICE HashedTile& tile() const {
    return *reinterpret_cast<HashedTile*>(draws() + TileDraws::kFloats);
  }
};

// The factor of a key, of the sum of its squares.
[[nodiscard]] XFORMER_DEVICE float key_factor(const HashedArguments& a, float squares) {
  return 1 / std::sqrt(squares + a.key_floor);
}

// What a block does with its tile. What is said to set something is done by the first 64 threads.
struct HashedBlock {
  const HashedArguments& a;
  HashedTile& tile;

  // The first thing: what it has; of keys or of queries.
  template <class Thread>
  XFORMER_DEVICE void begin(const Thread& thread, bool of_keys) const {
    if (thread.index() == 0) {
      const int64_t tiles = tiles_of(a.total());
      const int first = static_cast<int>(thread.block() % tiles) * kTileSide, chunk = first / a.chunk * a.chunk;
      const int last = (first + kTileSide < a.total() ? first + kTileSide : a.total()) - 1;
      const int last_chunk = last / a.chunk * a.chunk;
      tile.head = static_cast<int>(thread.block() / tiles);
      tile.sample = tile.head / a.h, tile.of_sample = tile.head % a.h, tile.begin = first;
      tile.others =
          of_keys ? HashedSpan{chunk, last_chunk + a.width()} : HashedSpan{chunk - a.before, last_chunk + a.chunk};
    }
    thread.sync();
  }

  template <class Thread>
  XFORMER_DEVICE void set_queries(const Thread& thread, int from, int to, bool backward) const {
    const int i = thread.index();
    if (i >= kTileSide) return;
    const int token = from + i < to ? token_at(from + i) : -1;
    tile.query[i] = token;
    if (!backward) return;
    // Beside a logit of -1e5 the log of a sum would be lost in rounding.
    const float shift = token < 0 ? 0.0f : a.shift[statistic(token)];
    const bool alone = shift == kAloneLogit;
    tile.self[i] = alone ? 0.0f : kAloneLogit;
    tile.log_sum[i] =
        token < 0 ? static_cast<float>(INFINITY) : (alone ? 0.0f : shift) + std::log(a.sum[statistic(token)]);
  }
  template <class Thread>
  XFORMER_DEVICE void set_keys(const Thread& thread, int from, int to) const {
    const int i = thread.index();
    if (i < kTileSide) tile.key[i] = from + i < to ? token_at(from + i) : -1;
  }
  // What the queries from the slot `query` on, which are set, have to do with the keys from the slot `key` on.
  template <class Thread>
  XFORMER_DEVICE void set_seen(const Thread& thread, int query, int key) const {
    const int i = thread.index();
    if (i >= kTileSide) return;
    const int slot = query + i, start = slot / a.chunk * a.chunk - a.before;
    tile.first[i] = (int64_t{tile.head} * a.total() + wrapped(slot)) * a.width() + key - start;
    const auto within = [](int place) { return place < 0 ? 0 : place < kTileSide ? place : kTileSide; };
    const int from = within(start - key), to = within(start + a.width() - key);
    tile.seen[i] = tile.query[i] < 0 || from >= to ? 0 : from | (to - from) << 8;
  }

  // Whether any of 64 is a token.
  template <class Thread>
  [[nodiscard]] XFORMER_DEVICE bool any(const Thread& thread, const int* tokens) const {
    const int lane = thread.index() % kWarp;
    int found = tokens[lane] >= 0 || tokens[lane + kWarp] >= 0 ? 1 : 0;
    XFORMER_UNROLL
    for (int mask = 1; mask < kWarp; mask *= 2) found |= thread.shuffle_xor(found, mask);
    return found != 0;
  }

  // The tokens' rows of such heads.
  template <int kWidth, class Thread>
  XFORMER_DEVICE void load(const Thread& thread, const float* x, const HeadPlaces& places, int width, const int* tokens,
                           const SharedRows& into) const {
    load_rows<kWidth>(
        thread, x + tile.sample * places.sample + tile.of_sample * places.head, places, width,
        [&](int row) { return int64_t{tokens[row]}; }, into);
  }
  // Rows of q, whole in neighbouring lanes, at the length of keys.
  template <int kWidth, class Thread>
  XFORMER_DEVICE void load_keys(const Thread& thread, const SharedRows& into) const {
    constexpr int kRuns = kWidth / kRun;
    const float* const x = a.q + tile.sample * a.q_places.sample + tile.of_sample * a.q_places.head;
    XFORMER_UNROLL
    for (int i = 0; i < kTileSide * kRuns / kTileThreads; ++i) {
      const int place = i * kTileThreads + thread.index(), row = place / kRuns, column = place % kRuns * kRun;
      const int64_t from = tile.key[row];
      float values[kRun], squares = 0;
      load_run(thread, x + from * a.q_places.row + column, from < 0 ? 0 : run_length(a.d - column), a.q_places.wide,
               values);
      XFORMER_UNROLL
      for (int j = 0; j < kRun; ++j) squares += values[j] * values[j];
      const float factor = key_factor(a, lane_sum(thread, squares, 1, kRuns));
      XFORMER_UNROLL
      for (int j = 0; j < kRun; ++j) values[j] *= factor;
      put_run(thread, values, into.at(row, column));
    }
  }
  template <class Thread>
  XFORMER_DEVICE void draw(const Thread& thread, const TileDraws& draws) const {
    draws.draw(thread, [&](int row) { return tile.first[row]; });
  }

  // visit(query, product) for the lane's products of a token with itself, of queries by keys or, with kKeys, of keys by
  // queries.
  template <bool kKeys, int kTiles, class Thread, class Visit>
  XFORMER_DEVICE void for_self(const Thread& thread, int warp_row, float (*product)[4], const Visit& visit) const {
    const FragmentPlace place(thread);
    XFORMER_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      XFORMER_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int row = warp_row + place.row + (i >= 2 ? 8 : 0), column = j * kTileColumns + 2 * place.pair + i % 2;
        const int query = kKeys ? column : row, key = kKeys ? row : column;
        if (tile.query[query] == tile.key[key]) visit(query, product[j][i]);
      }
    }
  }

  // softmax_gradient() of a tile; the logit of a token with itself is no product, and has no gradient.
  template <bool kKeys, int kTiles, class Thread>
  XFORMER_DEVICE void weigh(const Thread& thread, const TileDraws& draws, int warp_row, float (*weight)[4],
                            float (*slope)[4]) const {
    const auto seen = [&](int query, int key) { return tile.sees(query, key); };
    for_self<kKeys, kTiles>(thread, warp_row, weight, [&](int query, float& one) { one = tile.self[query]; });
    softmax_gradient<kKeys, kTiles>(thread, 1.0f, draws, warp_row, seen, tile.log_sum, tile.delta, weight, slope);
    for_self<kKeys, kTiles>(thread, warp_row, slope, [](int, float& one) { one = 0; });
  }

  // Where a token's numbers are, of all rounds and of that of the block's slot `i`, in [b,h,n] and [b,h,r,n].
  [[nodiscard]] XFORMER_DEVICE int64_t statistic(int token) const { return int64_t{tile.head} * a.n + token; }
  [[nodiscard]] XFORMER_DEVICE int64_t of_round(int i, int token) const {
    return (int64_t{tile.head} * a.rounds + (tile.begin + i) / a.slots) * a.n + token;
  }
  // A fragment of the block's slots to [b,h,r,n,width].
  template <int kTiles, class Thread>
  XFORMER_DEVICE void store(const Thread& thread, const float (*sum)[4], int warp_row, const int* tokens, int width,
                            float* to) const {
    const FragmentPlace place(thread);
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row + place.row + 8 * half, token = tokens[row];
      if (token < 0) continue;
      float* const into = to + of_round(row, token) * width;
      XFORMER_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 0; i < 2; ++i) {
          const int column = j * kTileColumns + 2 * place.pair + i;
          if (column < width) into[column] = sum[j][2 * half + i];
        }
      }
    }
  }

 private:
  [[nodiscard]] XFORMER_DEVICE int wrapped(int slot) const {
    return slot < 0 ? slot + a.total() : slot < a.total() ? slot : slot - a.total();
  }
  [[nodiscard]] XFORMER_DEVICE int token_at(int slot) const {
    const int place = wrapped(slot),
              token = a.order == nullptr ? place : a.order[int64_t{tile.head} * a.total() + place];
    return token < a.n && (a.valid == nullptr || a.valid[int64_t{tile.sample} * a.n + token]) ? token : -1;
  }
};

template <ProductKind kKind, int kWidth>
struct HashedAttentionForwardProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2, kShared = 3;
  static constexpr int kTiles = kTileSide / kTileColumns, kOutTiles = kWidth / kTileColumns;
  HashedArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const HashedMemory<kWidth, kShared> memory(thread);
    const SharedRows q = memory.rows(0), k = memory.rows(1), v = memory.rows(2);
    HashedTile& tile = memory.tile();
    const HashedBlock block{a, tile};
    block.begin(thread, /*of_keys=*/false);
    block.set_queries(thread, tile.begin, a.total(), /*backward=*/false);
    thread.sync();
    if (!block.any(thread, tile.query)) return;
    block.template load<kWidth>(thread, a.q, a.q_places, a.d, tile.query, q);
    const int warp_row = thread.index() / kWarp * kTileRows;
    const TileDraws draws(a.drop, memory.draws());
    SoftmaxRows<kOutTiles> found;
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
      float score[kTiles][4] = {};
      multiply_rows<kKind, kWidth, kTiles>(thread, q, warp_row, k, score);
      block.template for_self<false, kTiles>(thread, warp_row, score, [](int, float& one) { one = kAloneLogit; });
      const auto seen = [&](int query, int key_place) { return tile.sees(query, key_place); };
      found.template weigh<kTiles>(thread, 1.0f, draws, warp_row, seen, score);
      multiply_weights<kKind, kTiles, kOutTiles>(thread, score, v, found.out);
    }
    const FragmentPlace place(thread);
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float sum = lane_sum(thread, found.sum[half], 1, 4);
      const int row = warp_row + place.row + 8 * half, token = tile.query[row];
      if (place.pair > 0 || token < 0) continue;
      a.shifts[block.of_round(row, token)] = found.largest[half];
      a.sums[block.of_round(row, token)] = sum;
    }
    block.template store<kOutTiles>(thread, found.out, warp_row, tile.query, a.e, a.rows);
  }
};

// What is added up over the rounds: a thread has a run of channels of a token, some neighbours all of them.
template <int kWidth>
struct HashedToken {
  static constexpr int kLanes = kWidth / kRun, kTokens = kTileThreads / kLanes;  // the second: of a block
  const HashedArguments& a;
  int64_t head;  // of all b h
  int token, column;
  bool there, counts;

  template <class Thread>
  XFORMER_DEVICE HashedToken(const Thread& thread, const HashedArguments& a) : a(a) {
    const int64_t number = thread.block() * kTokens + thread.index() / kLanes;
    head = number / a.n, token = static_cast<int>(number % a.n), column = thread.index() % kLanes * kRun;
    there = number < int64_t{a.b} * a.h * a.n;
    counts = there && (a.valid == nullptr || a.valid[head / a.h * a.n + token]);
  }
  [[nodiscard]] static constexpr LaunchGrid grid(const HashedArguments& a) {
    return {(int64_t{a.b} * a.h * a.n + kTokens - 1) / kTokens, 0};
  }

  [[nodiscard]] XFORMER_DEVICE int64_t of_round(int round) const { return (head * a.rounds + round) * a.n + token; }
  // The channels of a round's row [b,h,r,n,width].
  template <class Thread>
  XFORMER_DEVICE void load(const Thread& thread, const float* rows, int round, int width, float* into) const {
    load_run(thread, rows + of_round(round) * width + column, run_length(width - column), width % kRun == 0, into);
  }
  // Zeros for a token that does not count.
  template <class Thread>
  XFORMER_DEVICE void sum(const Thread& thread, const float* rows, int width, float* into) const {
    XFORMER_UNROLL
    for (int i = 0; i < kRun; ++i) into[i] = 0;
    for (int round = 0; counts && round < a.rounds; ++round) {
      float more[kRun];
      load(thread, rows, round, width, more);
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) into[i] += more[i];
    }
  }
  // To [b,n,h,width].
  template <class Thread>
  XFORMER_DEVICE void store(const Thread& thread, const float* values, int width, float* to) const {
    const int64_t row = (head / a.h * a.n + token) * a.h + head % a.h;
    store_run(thread, values, there ? run_length(width - column) : 0, width % kRun == 0, to + row * width + column);
  }
};

// The rounds' sums as if all had been one.
template <int kWidth>
struct HashedAttentionRoundsProgram {
  static constexpr int kThreads = kTileThreads, kResident = 8;
  HashedArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const HashedToken<kWidth> own(thread, a);
    if (!own.there) return;
    float shift = own.counts ? a.shifts[own.of_round(0)] : 0.0f, sum = 0, out[kRun] = {};
    for (int round = 1; own.counts && round < a.rounds; ++round) {
      const float other = a.shifts[own.of_round(round)];
      shift = other > shift ? other : shift;
    }
    for (int round = 0; own.counts && round < a.rounds; ++round) {
      const float factor = thread.exp(a.shifts[own.of_round(round)] - shift);
      float row[kRun];
      own.load(thread, a.rows, round, a.e, row);
      sum += a.sums[own.of_round(round)] * factor;
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) out[i] += row[i] * factor;
    }
    const float inverse = own.counts ? 1 / sum : 0.0f;
    XFORMER_UNROLL
    for (int i = 0; i < kRun; ++i) out[i] *= inverse;
    own.store(thread, out, a.e, a.out);
    if (own.column > 0) return;
    a.shift[own.head * a.n + own.token] = shift;
    a.sum[own.head * a.n + own.token] = sum;
  }
};

}  // namespace xformer::kernels
