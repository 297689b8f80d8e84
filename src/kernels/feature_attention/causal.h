// The causal form of feature attention (Katharopoulos et al. 2020, equations 8 to 12) in chunks of rows: weights within
// a chunk, and the table of all keys before it. A head goes through its chunks in order, the gradients of keys and
// values through the same chunks backwards; no [n,f] and no [n,f,e] exists.
//
// kSoftmax: row i divides by exp(c_i), c_i the largest y of the keys up to i. Features of keys ("peaks") are made
// relative to the c of their own row and without the floor, which is summed apart: so every exponent is at most zero.
// A gradient of c goes to the key and feature that gave it, of equal ones the last.
#pragma once

#include "kernels/feature_attention/causal_tiles.h"
#include "kernels/feature_attention/cpu.h"
#include "kernels/feature_attention/pass.h"

namespace xformer::kernels {

// Rows of a chunk, and as many keys as can be seen and count.
struct CausalChunk {
  int64_t b, h, first, rows, keys;
  bool earlier, later;  // whether there are chunks before, behind
};

template <class Stored>
struct CausalScratch : FeatureScratch<Stored> {
  using Value = Computed<Stored>;
  CausalScratch(int64_t f, int64_t e)
      : FeatureScratch<Stored>(kCausalRows, f, e),
        queries(static_cast<size_t>(kCausalRows * f)),
        keys(queries.size()),
        weights(static_cast<size_t>(kCausalRows * kCausalRows)),
        slopes(weights.size()),
        table(static_cast<size_t>((e + 1) * f)),
        apart(static_cast<size_t>(e + 1)),
        c(static_cast<size_t>(kCausalRows)),
        factors(c.size()),
        totals(c.size()),
        more(c.size()) {}

  std::vector<Value> queries, keys;    // [rows,f] features
  std::vector<Value> weights, slopes;  // [rows,keys]
  std::vector<Value> table;            // [e+1,f], sums over other chunks, relative to the c at their border
  std::vector<Value> apart;            // kSoftmax [e+1], what the floor takes of them
  std::vector<Value> c, factors, totals, more;
  std::vector<Stored> queries_factor, keys_factor, weights_factor, slopes_factor;
};

template <class Stored>
struct CausalPass : FeaturePass<Stored> {
  using Value = Computed<Stored>;
  using Scratch = CausalScratch<Stored>;
  using FeaturePass<Stored>::FeaturePass;
  static constexpr Value kNone = -std::numeric_limits<Value>::infinity();

  // One behind the last row of sample b that comes out, and the last key that it sees.
  [[nodiscard]] int64_t row_end(int64_t b) const {
    return this->valid_keys.end(b) == 0 ? 0 : this->valid_queries.end(b);
  }
  [[nodiscard]] int64_t key_end(int64_t b) const { return std::min(this->valid_keys.end(b), row_end(b)); }
  [[nodiscard]] CausalChunk chunk(int64_t z, int64_t first) const {
    const int64_t b = z / this->h, rows = std::min(kCausalRows, row_end(b) - first);
    return {b,
            z % this->h,
            first,
            rows,
            std::clamp<int64_t>(key_end(b) - first, 0, rows),
            first > 0,
            first + rows < row_end(b)};
  }

  [[nodiscard]] const Value* c_of(const Scratch& scratch) const { return this->softmax ? scratch.c.data() : nullptr; }
  [[nodiscard]] Value key_floor() const { return this->softmax ? Value(0) : this->floor(); }
  // exp(from - to), also where both are kNone.
  [[nodiscard]] static Value decay(Value from, Value to) { return from == to ? Value(1) : std::exp(from - to); }
  [[nodiscard]] const bool* key_flags(const CausalChunk& at) const {
    return this->flags(this->valid_keys, at.b, at.first, at.keys);
  }
  [[nodiscard]] const bool* query_flags(const CausalChunk& at) const {
    return this->flags(this->valid_queries, at.b, at.first, at.rows);
  }

  // Peaks or features of the chunk's keys into scratch.keys and, kSoftmax, each row's c into scratch.c, when `before`
  // is the c ahead of the chunk. scored(r, largest) is called for valid keys while scratch.tile has their y.
  template <class Scored>
  TileRows<const Value> load_keys(const CausalChunk& at, Value before, Scratch& scratch, const Scored& scored) const {
    TileRows<const Value> x{};
    if (at.keys > 0) x = this->scores(this->keys.at(at.b, at.h, at.first), this->keys.stride, at.keys, scratch);
    const bool* const valid = key_flags(at);
    for (int64_t r = 0; this->softmax && r < at.rows; ++r) {
      const auto i = static_cast<size_t>(r);
      if (r < at.keys && (valid == nullptr || valid[r])) {
        before = std::max(before, scratch.largest[i]);
        scored(r, scratch.largest[i]);
      }
      scratch.c[i] = before;
      if (r < at.keys) scratch.shift[i] += before;
    }
    features_of_keys(this->options.map, scratch.tile.data(), at.keys, this->f, scratch.shift.data(), valid, key_floor(),
                     static_cast<Value*>(nullptr));
    std::swap(scratch.tile, scratch.keys);
    return x;
  }

  // Features of the chunk's queries into scratch.queries and, kSoftmax, their sums into scratch.totals.
  TileRows<const Value> load_queries(const CausalChunk& at, Scratch& scratch, bool with_winners) const {
    const auto x = this->scores(this->queries.at(at.b, at.h, at.first), this->queries.stride, at.rows, scratch);
    for (int64_t r = 0; this->softmax && r < at.rows; ++r) {
      const auto i = static_cast<size_t>(r);
      scratch.shift[i] += scratch.largest[i];
      if (with_winners) scratch.winners[i] = this->winner_of(scratch.tile.data() + r * this->f, scratch.largest[i]);
    }
    features_of_keys(this->options.map, scratch.tile.data(), at.rows, this->f, scratch.shift.data(), nullptr,
                     this->floor(), static_cast<Value*>(nullptr));
    std::swap(scratch.tile, scratch.queries);
    if (this->softmax) dots_of_rows(scratch.queries.data(), at.rows, this->f, nullptr, scratch.totals.data());
    return x;
  }

  // Of loaded rows: weights within the chunk, and into `sums` those of each row.
  void weigh(const CausalChunk& at, Scratch& scratch, Value* sums) const {
    gemm(at.rows, at.keys, this->f, Value(1), {queries_factor(at, scratch), this->f},
         {keys_factor(at, scratch), this->f, true}, Value(0), scratch.weights.data(), at.keys);
    for (int64_t r = 0; this->softmax && r < at.rows; ++r)
      scratch.more[static_cast<size_t>(r)] = this->floor() * scratch.totals[static_cast<size_t>(r)];
    weights_of_chunk(scratch.weights.data(), at.rows, at.keys, key_flags(at), c_of(scratch),
                     this->softmax ? scratch.more.data() : nullptr, sums);
  }

  // The chunk's keys join the table, relative to the c of its last row; `before` is what the table was relative to.
  void join_keys(const CausalChunk& at, Value before, Scratch& scratch) const {
    const Stored* const v = this->values.at(at.b, at.h, at.first);
    Value *const table = scratch.table.data(), *const factors = scratch.factors.data();
    const int64_t f = this->f, e = this->e;
    const Value last = this->softmax ? scratch.c[static_cast<size_t>(at.rows - 1)] : Value(0);
    if (this->softmax) scale_table(decay(before, last), scratch);
    for (int64_t j = 0; j < at.keys; ++j)
      factors[j] = this->softmax ? decay(scratch.c[static_cast<size_t>(j)], last) : Value(1);
    add_rows(table + e * f, 0, scratch.keys.data(), f, at.keys, f, factors, Value(1));
    this->count_sums(at.keys);
    scale_rows(scratch.keys.data(), f, at.keys, f, factors, static_cast<const Value*>(nullptr),
               static_cast<const Value*>(nullptr));
    gemm(e, f, at.keys, Value(1), {v, this->values.stride, true}, {keys_factor(at, scratch), f}, Value(1), table, f);
    if (!this->softmax) return;
    const bool* const valid = key_flags(at);
    for (int64_t j = 0; j < at.keys; ++j) factors[j] = valid == nullptr || valid[j] ? Value(1) : Value(0);
    const auto wide = loaded_rows(v, this->values.stride, at.keys, e, scratch.first_room);
    add_rows(scratch.apart.data(), 0, wide.data, wide.stride, at.keys, e, factors, Value(1));
    for (int64_t j = 0; j < at.keys; ++j) scratch.apart[static_cast<size_t>(e)] += factors[j];
  }

  void scale_table(Value factor, Scratch& scratch) const {
    if (factor != 1)
      for (Value& one : scratch.table) one *= factor;
  }

  [[nodiscard]] const Stored* queries_factor(const CausalChunk& at, Scratch& scratch) const {
    return factor_of<Stored>(scratch.queries.data(), at.rows * this->f, scratch.queries_factor);
  }
  [[nodiscard]] const Stored* keys_factor(const CausalChunk& at, Scratch& scratch) const {
    return factor_of<Stored>(scratch.keys.data(), at.keys * this->f, scratch.keys_factor);
  }
  [[nodiscard]] const Stored* table_factor(Scratch& scratch) const {
    return factor_of<Stored>(scratch.table.data(), this->e * this->f, scratch.table_factor);
  }
};

// As feature_attention_forward_cpu(), whose result has no table here, and `largest` [z,n], each row's c.
[[nodiscard]] FeatureAttentionForward causal_features_forward(const at::Tensor& q, const at::Tensor& k,
                                                              const at::Tensor& v,
                                                              const FeatureAttentionOptions& options);
[[nodiscard]] FeatureAttentionGradients causal_features_backward(const at::Tensor& gradient, const at::Tensor& q,
                                                                 const at::Tensor& k, const at::Tensor& v,
                                                                 const FeatureAttentionForward& forward,
                                                                 const FeatureAttentionOptions& options);

}  // namespace xformer::kernels
