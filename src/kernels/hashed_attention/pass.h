// What both passes of hashed attention on the CPU share: tokens in the order of their buckets, and what a query may
// see.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/attention/gradient_rows.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/valid_rows.h"
#include "kernels/cpu/vectorised.h"
#include "kernels/hashed_attention/hashed_attention.h"

namespace xformer::kernels {

// Tokens in their slots; the chunk before the first lies in front, where there is one.
template <class Stored>
struct Sorted {
  std::vector<int32_t> tokens;  // -1: no key
  std::vector<Stored> q, k, v, slope;
  std::vector<Computed<Stored>> q_gradient, k_gradient, v_gradient;
};

template <class Stored>
struct Scratch {
  using Value = Computed<Stored>;
  Sorted<Stored> sorted;
  std::vector<Value> scores, steps, rows;
  std::vector<Value> length;                              // 1 / |q| of all tokens
  std::vector<Value> q_gradient, k_gradient, v_gradient;  // of all tokens
  std::vector<Value> shift, sum, log_sum, out;            // of all tokens
  std::vector<uint16_t> draws;
  std::vector<Stored> factor;  // a tile as products take it
  PairedTile paired;
  std::vector<Value> turned_k, turned_v;       // TileSums' rooms
  std::vector<Value> first_room, second_room;  // rows that are stored otherwise
};

class HashedPass {
 public:
  HashedPass(DrawnBy pass, const at::Tensor& q, const at::Tensor& v, const at::Tensor& order,
             const HashedAttentionOptions& options)
      : q(with_rows(q)),
        v(with_rows(v)),
        order(order),
        b(q.size(0)),
        h(q.size(1)),
        n(q.size(2)),
        d(q.size(3)),
        e(v.size(3)),
        hashed(order.defined()),
        c(hashed ? options.chunk : n),
        rounds(hashed ? order.size(2) : 1),
        slots(hashed ? order.size(3) : n),
        before(hashed ? c : 0),
        line((before + c + kSumLanes - 1) / kSumLanes * kSumLanes),
        valid(options.valid, n),
        draws(options.dropout, at::empty({1}, at::kByte).expand({b, h, rounds * slots / c, c, before + c}), pass) {}

  const at::Tensor q, v, order;
  const int64_t b, h, n, d, e;
  const bool hashed;
  const int64_t c, rounds, slots;
  const int64_t before, line;  // keys of the chunk before; elements of a row of logits, in whole steps
  const ValidRows valid;
  const ElementDraws draws;

  // The tokens of a round's slots with those of the chunk before it; -1 where there is none or an invalid one.
  void place(int64_t unit, int64_t round, std::vector<int32_t>& tokens) const {
    const int64_t sample = unit / h;
    tokens.resize(static_cast<size_t>(before + slots));
    if (hashed) {
      const int32_t* const lists = order.const_data_ptr<int32_t>() + unit * rounds * slots;
      const int64_t last = (round + rounds - 1) % rounds;
      std::copy_n(lists + last * slots + slots - c, c, tokens.begin());
      std::copy_n(lists + round * slots, slots, tokens.begin() + c);
    } else {
      for (int64_t i = 0; i < n; ++i) tokens[static_cast<size_t>(i)] = static_cast<int32_t>(i);
    }
    for (int32_t& token : tokens)
      if (token >= n || !valid.at(sample, token)) token = -1;
  }

  // Keys that the queries of a chunk look at: `columns` of the chunk before and its own, from `first` on.
  struct Window {
    int64_t first, columns;
  };
  // Without the chunk before where it holds no key; no columns where the chunk holds no query.
  [[nodiscard]] Window window(const std::vector<int32_t>& tokens, int64_t chunk) const {
    const auto begin = tokens.begin() + chunk * c;
    const auto none = [](int32_t token) { return token < 0; };
    if (std::all_of(begin + before, begin + before + c, none)) return {0, 0};
    const int64_t first = before > 0 && std::all_of(begin, begin + before, none) ? before : 0;
    return {first, before + c - first};
  }

  // Whatever keeps a query from a key, on the logits [c, line] of a chunk.
  template <class Value>
  void mask(const std::vector<int32_t>& tokens, int64_t chunk, const Window& window, Value* scores) const {
    constexpr Value kNever = -std::numeric_limits<Value>::infinity();
    const int32_t* const keys = tokens.data() + chunk * c + window.first;
    const int32_t* const queries = tokens.data() + chunk * c + before;
    const bool all_keys = std::find(keys, keys + window.columns, -1) == keys + window.columns;
    for (int64_t r = 0; r < c; ++r) {
      Value* const row = scores + r * line;
      std::fill(row + window.columns, row + line, kNever);
      if (!all_keys)
        for (int64_t j = 0; j < window.columns; ++j)
          if (keys[j] < 0) row[j] = kNever;
      for_self(queries, keys, chunk, window, r, [&](int64_t j) { row[j] = static_cast<Value>(kSelfLogit); });
    }
  }

  // The columns that are the row's own token: one of its chunk, and perhaps one of another round's.
  template <class Work>
  void for_self(const int32_t* queries, const int32_t* keys, int64_t chunk, const Window& window, int64_t r,
                const Work& work) const {
    if (queries[r] < 0) return;
    work(before - window.first + r);
    if (chunk > 0 || window.first == before) return;
    for (int64_t j = 0; j < before; ++j)
      if (keys[j] == queries[r]) work(j);
  }

  // What is taken off a row's logits before they become weights: the largest of them; beside one of -1e5, which stands
  // for its own token and is 0 then, anything would be lost in rounding.
  template <class Value>
  [[nodiscard]] Value shift_of(Value largest, const int32_t* queries, const int32_t* keys, int64_t chunk,
                               const Window& window, int64_t r, Value* row) const {
    if (largest != static_cast<Value>(kSelfLogit)) return largest;
    for_self(queries, keys, chunk, window, r, [&](int64_t j) { row[j] = Value(0); });
    return Value(0);
  }

  const uint16_t* draw(int64_t unit, int64_t round, int64_t chunk, std::vector<uint16_t>& memory) const {
    const int64_t all = rounds * slots / c, width = before + c;
    return draws.draw((unit * all + round * (slots / c) + chunk) * c * width, c * width, memory, /*beyond=*/line);
  }
};

// The tokens of each head and round by bucket, equal buckets in their order: [b,h,r,slots] int32.
[[nodiscard]] at::Tensor sorted_tokens(const at::Tensor& buckets);

}  // namespace xformer::kernels
