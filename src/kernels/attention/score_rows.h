// Scores of some rows of attention on the CPU against all keys that one of them may see, in the cache together: for
// weights that a row's scores make with one another (alpha-entmax, the largest few).
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/attention/score_tiles.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/stored.h"

namespace xformer::kernels {

// Scores are at most a mebibyte of floats, but for the least rows that a product is worth while for. Keys are
// multiplied in blocks, and lines are whole multiples of kScoreLanes, filled up with keys that are closed.
inline constexpr int64_t kMostScores = 1 << 18, kFewestScoreRows = 8, kMostScoreRows = 64, kScoreKeys = 256,
                         kScoreLanes = 32;

[[nodiscard]] inline int64_t score_rows_at_once(int64_t keys) {
  return std::clamp(kMostScores / std::max<int64_t>(keys, 1), kFewestScoreRows, kMostScoreRows);
}
[[nodiscard]] inline int64_t whole_blocks(int64_t count, int64_t block) { return (count + block - 1) / block * block; }

// Pairs of a row and a key that are multiplied for each head when all are valid: n m, or, causal, whole blocks of keys
// up to the diagonal.
[[nodiscard]] inline int64_t score_row_pairs(int64_t n, int64_t m, bool causal) {
  if (!causal) return n * m;
  int64_t pairs = 0;
  const int64_t block = score_rows_at_once(m);
  for (int64_t first = 0; first < n; first += block) {
    const int64_t rows = std::min(block, n - first), seen = std::clamp<int64_t>(first + rows + m - n, 0, m);
    pairs += rows * std::min(m, whole_blocks(seen, kScoreKeys));
  }
  return pairs;
}

// What a worker computes in.
template <class Stored>
struct ScoreRoom {
  std::vector<Computed<Stored>> scores;
  std::vector<PackedFactor<Stored>> turned_keys;  // of a head, by blocks
  int64_t head = -1;                              // b h + h
};

template <class Stored>
class ScoreRows {
 public:
  using Value = Computed<Stored>;

  ScoreRows(const at::Tensor& q, const at::Tensor& k, const HeadSizes& sizes, const AttentionOptions& options)
      : sizes(sizes),
        block(score_rows_at_once(sizes.m)),
        allowed(options, sizes),
        q(reading<Stored>(q)),
        k(reading<Stored>(k)) {}

  const HeadSizes sizes;
  const int64_t block;  // rows at once
  const AllowedPairs allowed;
  const Heads<const Stored> q, k;

  // One behind the last key of some rows: whole blocks, but for the sample's last one. 0: none of the rows counts.
  [[nodiscard]] int64_t key_end(int64_t b, int64_t first, int64_t rows) const {
    if (allowed.query_end(b) <= first) return 0;
    return std::min(whole_blocks(allowed.key_end(b, first + rows), kScoreKeys), allowed.key_end(b));
  }

  // work(first key, count, number of the block)
  template <class Work>
  static void for_blocks(int64_t end, const Work& work) {
    for (int64_t key = 0; key < end; key += kScoreKeys)
      work(key, std::min(kScoreKeys, end - key), static_cast<size_t>(key / kScoreKeys));
  }

  // Lays out the head's keys, times `scale`, for score(); false where they are already.
  bool pack(int64_t b, int64_t h, Value scale, ScoreRoom<Stored>& room) const {
    if (room.head == b * sizes.h + h) return false;
    room.head = b * sizes.h + h;
    room.turned_keys.resize(static_cast<size_t>((sizes.m + kScoreKeys - 1) / kScoreKeys));
    for_blocks(allowed.key_end(b), [&](int64_t key, int64_t count, size_t place) {
      room.turned_keys[place].pack(sizes.n, sizes.d, count, scale, {k.at(b, h, key), k.stride, true});
    });
    return true;
  }

  // Scores of the first `end` keys, -infinity where one may not be seen: returns a line's length.
  int64_t score(int64_t b, int64_t h, int64_t first, int64_t rows, int64_t end, ScoreRoom<Stored>& room) const {
    constexpr Value kNever = -std::numeric_limits<Value>::infinity();
    const int64_t line = whole_blocks(end, kScoreLanes);
    Value* const y = grown(room.scores, rows * line);
    for_blocks(end, [&](int64_t key, int64_t, size_t place) {
      gemm(rows, {q.at(b, h, first), q.stride}, room.turned_keys[place], Value(0), y + key, line);
    });
    for (int64_t r = 0; r < rows; ++r) std::fill(y + r * line + end, y + (r + 1) * line, kNever);
    allowed.exclude(y, line, b, first, rows, 0, end);
    return line;
  }
};

}  // namespace xformer::kernels
