// The causal form of feature attention (Katharopoulos et al. 2020, equations 8 to 12) in chunks of rows: weights within
// a chunk, and the table of all keys before it. A head's forward pass goes through its chunks in order and keeps the
// table at every block of them. The backward pass takes the blocks from the last to the first, makes a block's features
// once, and goes through it twice: forwards for the gradients of queries, with the table of keys before, and back for
// those of keys and values, with a table of the queries behind. No [n,f] and no [n,f,e] exists.
//
// Features are columns (causal_tiles.h), so every product takes its factors as they lie: omega, tables [f,e] and
// features [f,rows] are never copied to be turned over.
//
// kSoftmax: row i divides by exp(c_i), c_i the largest y of the keys up to i. Features of keys ("peaks") are made
// relative to the c of their own row and without the floor, which is summed apart: so every exponent is at most zero.
// A gradient of c goes to the key and feature that gave it, of equal ones the last.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/feature_attention/causal_tiles.h"
#include "kernels/feature_attention/cpu.h"
#include "kernels/feature_attention/pass.h"

namespace xformer::kernels {

// Rows of a block: its features, 512 KiB of floats for 256 of each row, lie in the second-level cache, and a table for
// each block takes as much memory as the values.
constexpr int64_t kCausalBlock = 256;

// Rows of a chunk, and as many keys as can be seen and count.
template <class Value>
struct CausalChunk {
  int64_t b, h, first, rows, keys;
  bool earlier, later;  // whether there are chunks before, behind
  const Value* c;       // kSoftmax: of each row; c[-1], where there are chunks before, is that at their border

  [[nodiscard]] const Value& last() const { return c[rows - 1]; }
};

// Sums over the rows of other chunks.
template <class Value>
struct CausalTable {
  CausalTable(int64_t f, int64_t e) : all(static_cast<size_t>((f + 1) * (e + 1))), z_at(f * e), apart_at(z_at + f) {}

  [[nodiscard]] Value* sums() { return all.data(); }              // [f,e], relative to the c at their border
  [[nodiscard]] Value* z() { return all.data() + z_at; }          // [f], likewise
  [[nodiscard]] Value* apart() { return all.data() + apart_at; }  // kSoftmax [e+1], what the floor takes of them

  void clear() { std::fill(all.begin(), all.end(), Value(0)); }
  void scale(Value factor) {
    if (factor != 1)
      for (int64_t i = 0; i < apart_at; ++i) all[static_cast<size_t>(i)] *= factor;
  }

  std::vector<Value> all;
  int64_t z_at, apart_at;
};

// What is kept of a chunk.
template <class Value>
struct CausalTiles {
  CausalTiles(int64_t f, int64_t e)
      : queries(static_cast<size_t>(kCausalRows * f)),
        keys(queries.size()),
        numerator(static_cast<size_t>(kCausalRows * e)),
        slopes(static_cast<size_t>(kCausalRows * kCausalRows)) {}

  std::vector<Value> queries, keys;  // [f,kCausalRows] features
  std::vector<Value> numerator;      // [rows,e] its gradient
  std::vector<Value> slopes;         // [rows,keys] gradients of the products of features
  Value totals[kCausalRows] = {};    // kSoftmax: sums of a query's features
  Value d_sum[kCausalRows] = {};     // gradients of denominators
  // kSoftmax: the feature that gave a query's largest y, and that of a key which gave a c, else -1.
  int64_t query_features[kCausalRows] = {}, key_features[kCausalRows] = {};
};

template <class Stored>
struct CausalScratch {
  using Value = Computed<Stored>;
  CausalScratch(int64_t f, int64_t e, int64_t chunks)
      : table(f, e),
        behind(f, e),
        gradient(static_cast<size_t>(kCausalRows * f)),
        weights(static_cast<size_t>(kCausalRows * kCausalRows)),
        chunks(static_cast<size_t>(chunks), CausalTiles<Value>(f, e)) {}

  CausalTable<Value> table, behind;  // of keys before, of queries behind
  std::vector<Value> gradient;       // [f,kCausalRows]
  std::vector<Value> weights;        // [rows,keys]
  std::vector<CausalTiles<Value>> chunks;
  // A number for each row, or key.
  Value largest[kCausalRows] = {}, winners[kCausalRows] = {}, shift[kCausalRows] = {}, keep[kCausalRows] = {},
        factors[kCausalRows] = {}, more[kCausalRows] = {}, times[kCausalRows] = {}, sums[kCausalRows] = {},
        dots[kCausalRows] = {};
  std::vector<Value> x_room, first_room, second_room, result_room;  // rows that are stored otherwise
  // As products take them.
  std::vector<Stored> queries_factor, keys_factor, table_factor, numerator_factor, weights_factor, gradient_factor;
};

template <class Stored>
struct CausalPass : FeaturePass<Stored> {
  using Value = Computed<Stored>;
  using Scratch = CausalScratch<Stored>;
  using Chunk = CausalChunk<Value>;
  using Tiles = CausalTiles<Value>;
  using FeaturePass<Stored>::FeaturePass;
  static constexpr Value kNone = -std::numeric_limits<Value>::infinity();

  // One behind the last row of sample b that comes out, and the last key that it sees.
  [[nodiscard]] int64_t row_end(int64_t b) const {
    return this->valid_keys.end(b) == 0 ? 0 : this->valid_queries.end(b);
  }
  [[nodiscard]] int64_t key_end(int64_t b) const { return std::min(this->valid_keys.end(b), row_end(b)); }
  // `largest`: kSoftmax, each row's c [n] of head z.
  [[nodiscard]] Chunk chunk(int64_t z, int64_t first, const Value* largest) const {
    const int64_t b = z / this->h, rows = std::min(kCausalRows, row_end(b) - first);
    return {b,
            z % this->h,
            first,
            rows,
            std::clamp<int64_t>(key_end(b) - first, 0, rows),
            first > 0,
            first + rows < row_end(b),
            this->softmax ? largest + first : nullptr};
  }
  // Tables that the forward pass keeps of a head, and the numbers of one.
  [[nodiscard]] int64_t tables() const { return std::max<int64_t>(0, (this->n - 1) / kCausalBlock); }
  [[nodiscard]] int64_t table_size() const { return (this->f + 1) * (this->e + 1); }

  [[nodiscard]] Value before(const Chunk& at) const { return at.earlier ? at.c[-1] : kNone; }
  [[nodiscard]] Value key_floor() const { return this->softmax ? Value(0) : this->floor(); }
  // exp(from - to), also where both are kNone.
  [[nodiscard]] static Value decay(Value from, Value to) { return from == to ? Value(1) : std::exp(from - to); }
  // exp(from(r) - to(r)) of each row; nullptr where all are 1.
  template <class From, class To>
  [[nodiscard]] const Value* decays(int64_t rows, const From& from, const To& to, Value* room) const {
    if (!this->softmax) return nullptr;
    bool any = false;
    for (int64_t r = 0; r < rows; ++r) {
      room[r] = decay(from(r), to(r));
      any = any || room[r] != 1;
    }
    std::fill(room + rows, room + kCausalRows, Value(1));
    return any ? room : nullptr;
  }
  // From the c at the border before the chunk to each row's, and from each key's to that of the last row.
  [[nodiscard]] const Value* decays_to_rows(const Chunk& at, Value* room) const {
    return decays(
        at.rows, [&](int64_t) { return before(at); }, [&](int64_t r) { return at.c[r]; }, room);
  }
  [[nodiscard]] const Value* decays_of_keys(const Chunk& at, Value* room) const {
    return decays(
        at.keys, [&](int64_t j) { return at.c[j]; }, [&](int64_t) { return at.last(); }, room);
  }

  [[nodiscard]] const bool* key_flags(const Chunk& at) const {
    return this->flags(this->valid_keys, at.b, at.first, at.keys);
  }
  [[nodiscard]] const bool* query_flags(const Chunk& at) const {
    return this->flags(this->valid_queries, at.b, at.first, at.rows);
  }
  // 1 for each column that counts; nullptr where all do.
  [[nodiscard]] static const Value* kept(const bool* valid, int64_t count, Value* room) {
    if (valid == nullptr && count == kCausalRows) return nullptr;
    for (int64_t r = 0; r < kCausalRows; ++r)
      room[r] = r < count && (valid == nullptr || valid[r]) ? Value(1) : Value(0);
    return room;
  }

  // y of rows x into the columns of a tile; kSoftmax: |x'|^2 / 2 into scratch.shift.
  void column_scores(const Stored* x, int64_t stride, int64_t rows, Value* tile, Scratch& scratch) const {
    const int64_t d = this->d;
    if (this->omega != nullptr)
      gemm(this->f, rows, d, this->omega_scale, {this->omega, d}, {x, stride, true}, Value(0), tile, kCausalRows);
    if (this->omega != nullptr && !this->softmax) return;
    const TileRows<const Value> wide = loaded_rows(x, stride, rows, d, scratch.x_room);
    if (this->omega == nullptr) turn_over(rows, d, wide.data, wide.stride, tile, kCausalRows);
    else
      squares_of_rows(wide.data, wide.stride, rows, d,
                      static_cast<Value>(this->options.scale * this->options.scale / 2), scratch.shift);
  }
  // Features of the chunk's queries and, kSoftmax, their sums and whose their largest y is.
  void load_queries(const Chunk& at, Tiles& tiles, Scratch& scratch) const {
    Value* const tile = tiles.queries.data();
    column_scores(this->queries.at(at.b, at.h, at.first), this->queries.stride, at.rows, tile, scratch);
    if (this->softmax) {
      largest_of_columns(tile, this->f, scratch.largest, scratch.winners);
      for (int64_t r = 0; r < at.rows; ++r) {
        scratch.shift[r] += scratch.largest[r];
        tiles.query_features[r] = static_cast<int64_t>(scratch.winners[r]);
      }
    }
    features_of_columns(this->options.map, tile, this->f, scratch.shift, kept(nullptr, at.rows, scratch.keep),
                        this->floor(), this->softmax ? tiles.totals : nullptr);
  }
  // From y to peaks or features of the chunk's keys.
  void key_features(const Chunk& at, Tiles& tiles, Scratch& scratch) const {
    for (int64_t j = 0; this->softmax && j < at.keys; ++j) scratch.shift[j] += at.c[j];
    features_of_columns(this->options.map, tiles.keys.data(), this->f, scratch.shift,
                        kept(key_flags(at), at.keys, scratch.keep), key_floor(), static_cast<Value*>(nullptr));
  }

  // Weights within the chunk as a product takes them; scratch.sums gets those of each row.
  const Stored* weigh(const Chunk& at, const Tiles& tiles, Scratch& scratch) const {
    gemm(at.rows, at.keys, this->f, Value(1), {queries_factor(tiles, scratch), kCausalRows, true},
         {keys_factor(tiles, scratch), kCausalRows}, Value(0), scratch.weights.data(), at.keys);
    for (int64_t r = 0; this->softmax && r < at.rows; ++r) scratch.more[r] = this->floor() * tiles.totals[r];
    weights_of_chunk(scratch.weights.data(), at.rows, at.keys, key_flags(at), at.c,
                     this->softmax ? scratch.more : nullptr, scratch.sums);
    return factor_of<Stored>(scratch.weights.data(), at.rows * at.keys, scratch.weights_factor);
  }

  // table += features [f,count] of a tile, times factors[column] (nullptr: 1), with `rows` [count,e]; times[column] of
  // them go to z.
  void join(const Value* tile, int64_t count, const Value* factors, const Value* times, Operand<Stored> rows,
            CausalTable<Value>& table, Scratch& scratch) const {
    if (factors != nullptr) {
      scale_columns(tile, this->f, factors, scratch.gradient.data());
      tile = scratch.gradient.data();
    }
    if (this->by_sum) add_columns(tile, this->f, times, table.z());
    this->count_sums(count);
    gemm(this->f, this->e, count, Value(1),
         {factor_of<Stored>(tile, this->f * kCausalRows, scratch.gradient_factor), kCausalRows}, rows, Value(1),
         table.sums(), this->e);
  }
  // The chunk's keys join the table, which was relative to the c before it and is then to that of its last row.
  void join_keys(const Chunk& at, const Tiles& tiles, Scratch& scratch) const {
    const Stored* const v = this->values.at(at.b, at.h, at.first);
    if (this->softmax) scratch.table.scale(decay(before(at), at.last()));
    std::fill_n(scratch.times, kCausalRows, Value(1));
    join(tiles.keys.data(), at.keys, decays_of_keys(at, scratch.factors), scratch.times, {v, this->values.stride},
         scratch.table, scratch);
    if (!this->softmax) return;
    const bool* const valid = key_flags(at);
    Value *const apart = scratch.table.apart(), *const counts = scratch.times;
    for (int64_t j = 0; j < at.keys; ++j) counts[j] = valid == nullptr || valid[j] ? Value(1) : Value(0);
    const auto wide = loaded_rows(v, this->values.stride, at.keys, this->e, scratch.first_room);
    add_rows(apart, 0, wide.data, wide.stride, at.keys, this->e, counts, Value(1));
    for (int64_t j = 0; j < at.keys; ++j) apart[this->e] += counts[j];
  }

  [[nodiscard]] const Stored* queries_factor(const Tiles& tiles, Scratch& scratch) const {
    return factor_of<Stored>(tiles.queries.data(), kCausalRows * this->f, scratch.queries_factor);
  }
  [[nodiscard]] const Stored* keys_factor(const Tiles& tiles, Scratch& scratch) const {
    return factor_of<Stored>(tiles.keys.data(), kCausalRows * this->f, scratch.keys_factor);
  }
  [[nodiscard]] const Stored* table_factor(CausalTable<Value>& table, Scratch& scratch) const {
    return factor_of<Stored>(table.sums(), this->e * this->f, scratch.table_factor);
  }
};

// As feature_attention_forward_cpu(). The result has the tables [z,blocks,(f+1)(e+1)] ahead of every block but the
// first, in `largest` [z,n] each row's c and in `winner` [z,n] the key that gave it, or -1.
[[nodiscard]] FeatureAttentionForward causal_features_forward(const at::Tensor& q, const at::Tensor& k,
                                                              const at::Tensor& v,
                                                              const FeatureAttentionOptions& options);
[[nodiscard]] FeatureAttentionGradients causal_features_backward(const at::Tensor& gradient, const at::Tensor& q,
                                                                 const at::Tensor& k, const at::Tensor& v,
                                                                 const FeatureAttentionForward& forward,
                                                                 const FeatureAttentionOptions& options);

}  // namespace xformer::kernels
