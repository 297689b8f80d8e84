// Feature attention (feature_attention.h) as device programs. A block holds 64 rows of one head in shared memory, its
// four warps 16 of them each, and goes over the features, 64 at a time, which live in registers: y = omega x' is made
// again wherever features are needed. Every pass reads its rows once, and once for each 64 features where it sums over
// rows; what lies between passes is a table of f (e + 1) numbers for each head and part of the rows, and with kSoftmax
// two numbers for each row. So without repeats for more than 64 features, forwards q, k and v are read and out is
// written once (kSoftmax: q and k are read twice); backwards q and the gradient are read twice, k, v and out once, and
// dq, dk and dv written. Nothing is added by atomics: parts of sums over rows are added afterwards, in order. The
// causal form is in causal_programs.h.
//
// Forwards: kSoftmax alone, what exponents lose (FeatureShiftProgram, KeyLargestProgram); S and z from keys and values
// (FeatureSumsProgram); the rows of queries against them (FeatureAnswerProgram). Backwards, with u = gradient /
// denominator and s = -u out the gradients of numerator and denominator: of queries (FeatureBackwardProgram); those of
// S and z, as S and z from queries, u and s (FeatureSumsProgram); of keys and values (FeatureBackwardProgram); and what
// kSoftmax's c takes, to the key that gave it (KeyWinnerProgram).
#pragma once

#include <cmath>

#include "kernels/device/heads.h"
#include "kernels/feature_attention/feature_map.h"

namespace xformer::kernels {

inline constexpr int kFeatureHeadWidest = 64;  // d and e; wider heads are left to plain operations

enum class FeatureStage { kShifts, kKeySums, kAnswers, kQueryGradients, kQuerySums, kKeyGradients };

// Queries or keys. z = b h heads.
struct FeatureRows {
  const void* x = nullptr;
  HeadPlaces places;
  const bool* valid = nullptr;  // [b,rows]; null: all are
  int64_t rows = 0;
  // kSoftmax, [z,rows]: |x'|^2 / 2 + c, infinite where the row does not count; and the feature of the row's largest y.
  float* shift = nullptr;
  int* feature = nullptr;
};

struct FeatureArguments {
  FeatureStage stage = FeatureStage::kShifts;
  ElementType type = ElementType::kFloat;  // of heads, outputs and gradients; not double
  ProductKind product = ProductKind::kFloat;
  FeatureMap map = FeatureMap::kElu;
  int64_t b = 0, h = 0;
  int d = 0, e = 0, f = 0;
  float scale = 1, floor = 0, epsilon = 0, divisor = 0;
  bool causal = false;
  const float* omega = nullptr;  // [f,d]; null: features are those of x itself
  RowPlaces omega_places;
  FeatureRows q, k;
  const void* v = nullptr;
  HeadPlaces v_places;
  float* largest = nullptr;  // kSoftmax [z,m]: each key's largest y, then c, causal of the keys up to it
  int* winner = nullptr;     // kSoftmax [z,m]: the key that gave c, -1 for none
  // [z,parts,table_size()] sums over a part of the rows. The sum of the parts is read as `table`; causal, what comes
  // before a part (of sums over queries: behind it) takes its place.
  float* parts = nullptr;
  float* chunks = nullptr;       // causal [z,tiles_of(n),table_size()]: of the part before (behind) each 64 rows
  const float* table = nullptr;  // [z,table_size()]
  bool wide_table = false;       // rows of S begin at sixteen bytes
  float* totals = nullptr;       // causal kSoftmax [z,n]: sums of a query's features
  float* inverse = nullptr;      // [z,n]: what rows are divided by, turned over; 0 for those that do not count
  void* out = nullptr;           // [b,n,h,e]

  // Of the backward pass alone. The gradients dq, dk, dv are [b,n,h,d], [b,m,h,d], [b,m,h,e].
  const void* gradient = nullptr;
  HeadPlaces gradient_places;
  float* d_sum = nullptr;   // [z,n]: s
  float* slopes = nullptr;  // kSoftmax [z,m]: what c takes for each key, causal for each query
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;

  [[nodiscard]] constexpr int64_t heads() const { return b * h; }
  // Whether what the floor takes of keys is summed apart, as no scale goes with it.
  [[nodiscard]] constexpr bool apart() const { return causal && map == FeatureMap::kSoftmax; }
  // S [f,e], z [f] behind it, and behind that, apart(), the sums of values and their number [e + 1].
  [[nodiscard]] constexpr int64_t z_at() const { return int64_t{f} * e; }
  [[nodiscard]] constexpr int64_t apart_at() const { return int64_t{f} * (e + 1); }
  [[nodiscard]] constexpr int64_t table_size() const { return (apart_at() + (apart() ? e + 1 : 0) + 3) / 4 * 4; }
};

// Heads of up to 32, or up to 64.
[[nodiscard]] constexpr int feature_width(int64_t d, int64_t e) { return d <= 32 && e <= 32 ? 32 : 64; }

// Shared memory of so many tiles, and of numbers for each row, column and warp.
[[nodiscard]] constexpr int64_t feature_bytes(int width, int tiles) {
  return (int64_t{tiles} * kTileSide * shared_stride(width) + 9 * kTileSide + kTileThreads / kWarp) * 4;
}
// A block for each 64 rows of every head, of queries and of keys.
[[nodiscard]] constexpr LaunchGrid feature_shift_grid(int64_t heads, int64_t queries, int64_t keys, int width) {
  return {heads * (tiles_of(queries) + tiles_of(keys)), feature_bytes(width, 2)};
}
// Of either.
[[nodiscard]] constexpr LaunchGrid feature_rows_grid(int64_t heads, int64_t rows, int width, int tiles) {
  return {heads * tiles_of(rows), feature_bytes(width, tiles)};
}
[[nodiscard]] constexpr RowDivision feature_division(int64_t heads, int64_t rows, int64_t f) {
  return row_division(rows, heads * tiles_of(f));
}
// A block for each 64 features of every head and part of its rows.
[[nodiscard]] constexpr LaunchGrid feature_sums_grid(int64_t heads, int64_t rows, int64_t f, int width) {
  return {heads * feature_division(heads, rows, f).parts * tiles_of(f), feature_bytes(width, 3)};
}

// A feature but for its floor, and what the gradient of y takes of its gradient. NaN stays NaN.
struct DeviceFeature {
  float value, slope;

  template <class Thread>
  XFORMER_DEVICE DeviceFeature(const Thread& thread, FeatureMap map, float y, float shift) {
    // Chosen, not branched to: the map is the same for all, and an exponential costs less than a jump.
    const bool relu = map == FeatureMap::kRelu, above = y > 0 && (relu || map == FeatureMap::kElu);
    const float power = thread.exp(y - shift), below = relu ? y < 0 ? 0.0f : y : power;
    value = above ? relu ? y : y + 1 : below;
    slope = above ? 1.0f : relu ? 0.0f : power;
  }
};

// y of the kTiles * 8 features from `first` on for 64 rows x: of a warp's 16 rows, or, turned, of its 16 features.
// Minus infinity behind the last feature. Without omega features are columns of x.
template <ProductKind kKind, int kWidth, bool kTurned, int kTiles, class Thread>
XFORMER_DEVICE void feature_scores(const Thread& thread, const FeatureArguments& a, int first, const SharedRows& x,
                                   const SharedRows& omega, float (&y)[kTiles][4]) {
  const FragmentPlace place(thread);
  const int warp_row = thread.index() / kWarp * kTileRows;
  const auto for_all = [&](const auto& change) {
    XFORMER_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      XFORMER_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int row = warp_row + place.row + (i >= 2 ? 8 : 0), column = j * kTileColumns + 2 * place.pair + i % 2;
        change(kTurned ? column : row, kTurned ? row : column, y[j][i]);
      }
    }
  };
  if (a.omega != nullptr) {
    multiply_rows<kKind, kWidth, kTiles>(thread, kTurned ? omega : x, warp_row, kTurned ? x : omega, y);
    for_all([&](int, int, float& one) { one *= a.scale; });
  } else {
    for_all([&](int own, int feature, float& one) { one = *x.at(own, std::min(first + feature, kWidth - 1)); });
  }
  if (first + kTileSide <= a.f) return;
  for_all([&](int, int feature, float& one) {
    if (first + feature >= a.f) one = -static_cast<float>(INFINITY);
  });
}

// kRows rows of omega from `feature` on; these and what follows are sent (device/tile.h).
template <int kWidth, int kRows = kTileSide, class Thread>
XFORMER_DEVICE void send_omega(const Thread& thread, const FeatureArguments& a, int feature, const SharedRows& into) {
  if (a.omega != nullptr) send_tile<kWidth, kRows>(thread, a.omega, a.omega_places, a.d, feature, a.f, nullptr, into);
}

// 64 rows of a head's S from `feature` on, and those of its z.
template <int kWidth, class Thread>
XFORMER_DEVICE void send_table(const Thread& thread, const FeatureArguments& a, int64_t head, int feature,
                               const SharedRows& into, float* sums) {
  const float *const table = a.table + head * a.table_size(), *const z = table + a.z_at();
  send_tile<kWidth>(thread, table, {a.e, a.wide_table}, a.e, feature, a.f, nullptr, into);
  if (thread.index() < kTileSide)
    sums[thread.index()] = feature + thread.index() < a.f ? z[feature + thread.index()] : 0.0f;
}

// 64 rows of a head's queries or keys.
template <class Value, int kWidth, class Thread>
XFORMER_DEVICE void send_block(const Thread& thread, const void* x, const HeadPlaces& places, int width,
                               const HeadBlock& block, int64_t end, const bool* valid, const SharedRows& into) {
  send_tile<kWidth>(thread, at_head<Value>(x, places, block), places, width, block.first, end, valid, into);
}

// kSoftmax: for every query |x'|^2 / 2 + c, for every key |x'|^2 / 2 and its largest y, and for both whose that is.
template <class Value, ProductKind kKind, int kWidth>
struct FeatureShiftProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2;
  static constexpr int kTiles = kTileSide / kTileColumns;
  FeatureArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr int kStride = shared_stride(kWidth);
    auto* const memory = static_cast<float*>(thread.shared());
    const SharedRows x{memory, kStride}, omega{memory + kTileSide * kStride, kStride};
    const int64_t queries = a.heads() * tiles_of(a.q.rows);
    const bool keys = thread.block() >= queries;
    const FeatureRows& side = keys ? a.k : a.q;
    const HeadBlock block = head_block(a.h, keys ? thread.block() - queries : thread.block(), side.rows);
    const bool* const valid = side.valid == nullptr ? nullptr : side.valid + block.b * side.rows;
    send_block<Value, kWidth>(thread, side.x, side.places, a.d, block, side.rows, valid, x);
    const FragmentPlace place(thread);
    float largest[2] = {-INFINITY, -INFINITY};
    int winner[2] = {0, 0};
    for (int first = 0; first < a.f; first += kTileSide) {
      thread.sync();
      send_omega<kWidth>(thread, a, first, omega);
      await_sent(thread);
      thread.sync();
      float y[kTiles][4] = {};
      feature_scores<kKind, kWidth, /*kTurned=*/false>(thread, a, first, x, omega, y);
      XFORMER_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int feature = first + j * kTileColumns + 2 * place.pair + i % 2;
          if (y[j][i] > largest[i / 2]) largest[i / 2] = y[j][i], winner[i / 2] = feature;
        }
      }
    }
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int own = thread.index() / kWarp * kTileRows + place.row + 8 * half;
      float square = 0;
      for (int c = place.pair; c < kWidth; c += 4) square += *x.at(own, c) * *x.at(own, c);
      square = lane_sum(thread, square, 1, 4) * (a.scale * a.scale / 2);
      XFORMER_UNROLL
      for (int mask = 1; mask < 4; mask *= 2) {  // of equal ones the first
        const float other = thread.shuffle_xor(largest[half], mask);
        const int feature = thread.shuffle_xor(winner[half], mask);
        if (!(other > largest[half]) && !(other == largest[half] && feature < winner[half])) continue;
        largest[half] = other, winner[half] = feature;
      }
      const int64_t row = block.first + own;
      if (row >= side.rows || place.pair != 0) continue;
      const int64_t at = (block.b * a.h + block.h) * side.rows + row;
      const bool counts = valid == nullptr || valid[row];
      side.shift[at] = !counts ? static_cast<float>(INFINITY) : keys ? square : square + largest[half];
      side.feature[at] = winner[half];
      if (keys) a.largest[at] = counts ? largest[half] : -static_cast<float>(INFINITY);
    }
  }
};

// kSoftmax: c of a head's keys, and which key gave it, of equal ones the first; causal, of the keys up to each, of
// equal ones the last. A block for each head; a thread goes over a piece of the keys.
struct KeyLargestProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2;
  FeatureArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    auto* const tops = static_cast<float*>(thread.shared());
    auto* const keys = reinterpret_cast<int*>(tops + kThreads);
    const int64_t m = a.k.rows, head = thread.block() * m, piece = (m + kThreads - 1) / kThreads;
    const int64_t begin = thread.index() * piece, end = begin + piece < m ? begin + piece : m;
    float top = -INFINITY;
    int key = -1;
    const auto offer = [&](float y, int other) {
      if (y > top || (a.causal && other >= 0 && y == top && y > -static_cast<float>(INFINITY))) top = y, key = other;
    };
    for (int64_t j = begin; j < end; ++j) offer(a.largest[head + j], static_cast<int>(j));
    tops[thread.index()] = top, keys[thread.index()] = key;
    thread.sync();
    top = -INFINITY, key = -1;
    for (int i = 0; i < (a.causal ? thread.index() : kThreads); ++i) offer(tops[i], keys[i]);
    for (int64_t j = begin; j < end; ++j) {
      if (a.causal) offer(a.largest[head + j], static_cast<int>(j));
      a.largest[head + j] = top, a.winner[head + j] = key;
      if (key >= 0) a.k.shift[head + j] += top;
    }
  }
};
[[nodiscard]] constexpr LaunchGrid key_largest_grid(int64_t heads) { return {heads, int64_t{kTileThreads} * 8}; }

}  // namespace xformer::kernels
