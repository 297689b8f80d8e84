// Attention on the CPU: blocks of queries against blocks of keys that stay in the second-level cache.
#include "kernels/attention/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <limits>
#include <vector>

#include "kernels/attention/gradient_rows.h"
#include "kernels/attention/score_tiles.h"
#include "kernels/attention/weight_draws.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/tile_sums.h"
#include "kernels/cpu/units.h"

namespace xformer::kernels {

namespace {

// A tile of scores is 64 KiB of floats, its draws half of that; two tiles, keys and values fit into 512 KiB.
constexpr int64_t kTile = 64 * 256, kKeyBlock = 256, kMostRows = 256;

// Queries of a tile: more where there are few keys.
int64_t query_block(int64_t keys) { return std::min(kMostRows, kTile / std::clamp<int64_t>(keys, 1, kKeyBlock)); }

// From one row of a tile to the next, however many of the keys a sample has: it is a constant of generated code.
int64_t tile_line(int64_t keys) { return std::min(kKeyBlock, (keys + 15) / 16 * 16); }

// What a worker computes in: no more than its shapes need, for small calls are many.
template <class Stored>
struct Scratch {
  using Value = Computed<Stored>;
  Scratch(int64_t n, int64_t m, bool backward, const WeightDraws& dropped)
      : tile(static_cast<size_t>(std::min(query_block(m), n) * tile_line(m))),
        block(static_cast<size_t>(std::min(query_block(m), n))),
        scores(tile),
        gradient(backward ? tile : 0),
        draws(dropped.room(static_cast<int64_t>(block), std::min(kKeyBlock, m))),
        rows(block, nullptr),
        largest(block),
        sum(block),
        rescale(block) {}

  size_t tile, block;
  std::vector<Value> scores, gradient;
  std::vector<uint16_t> draws;
  std::vector<const uint16_t*> rows;
  std::vector<Value> largest, sum, rescale, out;
  std::vector<Stored> factor;               // a tile as products take it
  std::vector<Value> dq, dk, dv;            // sums over blocks
  std::vector<Value> turned_dk, turned_dv;  // the same, TileSums' room
  PairedTile paired;
  // Backwards of a block of keys; forwards of all blocks of a head's keys, turned over.
  PackedFactor<Stored> keys, turned_keys, turned_values;
  std::vector<PackedFactor<Stored>> head_keys;
  int64_t head = -1;  // b h + h, of head_keys
};

template <class Stored>
std::vector<Scratch<Stored>> scratch_for(int64_t workers, const HeadSizes& sizes, bool backward,
                                         const WeightDraws& draws) {
  std::vector<Scratch<Stored>> result;
  for (int64_t worker = 0; worker < workers; ++worker) result.emplace_back(sizes.n, sizes.m, backward, draws);
  return result;
}

// The scale of scores, which are logarithms to base 2: products' where floats are laid out for them anyway; else that
// of the loops over weights, for which it costs nothing.
template <class Stored>
struct ScoreScale {
  using Value = Computed<Stored>;
  // A negative one would turn over which score is the largest, and zero times -infinity is no number.
  explicit ScoreScale(double scale) {
    const bool in_loops = kConverts<Stored> && scale > 0;
    (in_loops ? weights : scores) = static_cast<Value>(scale * kLog2OfE);
    (in_loops ? slopes : sums) = static_cast<Value>(scale);
  }
  Value scores = 1;   // of products q k^T
  Value weights = 1;  // of those in the loops over weights
  Value slopes = 1;   // of gradients there
  Value sums = 1;     // of products with those gradients
};

// The rows of a block from `first` on of one head: their output and log-sums.
template <class Stored, class Value = Computed<Stored>>
void forward_block(const HeadSizes& sizes, const AttentionOptions& options, const AllowedPairs& allowed,
                   const WeightDraws& draws, int64_t b, int64_t h, int64_t first, const Heads<const Stored>& q,
                   const Heads<const Stored>& k, const Heads<const Stored>& v, const Heads<Stored>& out, Value* log_sum,
                   Scratch<Stored>& scratch) {
  constexpr Value kNone = -std::numeric_limits<Value>::infinity();
  const int64_t e = sizes.e, line = tile_line(sizes.m), last = std::min(first + query_block(sizes.m), sizes.n);
  const int64_t counted = std::clamp<int64_t>(allowed.query_end(b) - first, 0, last - first);
  clear_heads(out, sizes.h, b, h, first + counted, last, e);
  std::fill(log_sum + first + counted, log_sum + last, -kNone);
  if (counted == 0) return;
  // All of the block's, whose number is a constant of generated code, or of few.
  const int64_t rows = sizes.n <= kFewQueries ? allowed.row_end(b) : last - first, end = allowed.key_end(b, last);
  scratch.out.resize(static_cast<size_t>(rows * e));
  std::fill(scratch.largest.begin(), scratch.largest.end(), kNone);
  std::fill(scratch.sum.begin(), scratch.sum.end(), Value(0));
  if (end == 0) std::fill(scratch.out.begin(), scratch.out.end(), Value(0));
  const ScoreScale<Stored> scale(options.scale);
  const auto keep = static_cast<Value>(draws.keep());
  const int64_t all_keys = allowed.key_end(b, sizes.n);
  if (const int64_t head = b * sizes.h + h; scratch.head != head) {
    scratch.head = head;
    scratch.head_keys.resize(static_cast<size_t>((all_keys + kKeyBlock - 1) / kKeyBlock));
    for (int64_t key = 0; key < all_keys; key += kKeyBlock)
      scratch.head_keys[static_cast<size_t>(key / kKeyBlock)].pack(
          sizes.n, sizes.d, std::min(kKeyBlock, all_keys - key), scale.scores, {k.at(b, h, key), k.stride, true});
  }
  for (int64_t key = 0; key < end; key += kKeyBlock) {
    const int64_t count = std::min(kKeyBlock, end - key);
    Value* const scores = scratch.scores.data();
    Stored* const weights = place_of_factor<Stored>(scores, rows * line, scratch.factor);
    if (count == std::min(kKeyBlock, all_keys - key))
      gemm(rows, {q.at(b, h, first), q.stride}, scratch.head_keys[static_cast<size_t>(key / kKeyBlock)], Value(0),
           scores, line);
    else  // causal, in the middle of a block
      gemm(rows, count, sizes.d, scale.scores, {q.at(b, h, first), q.stride}, {k.at(b, h, key), k.stride, true},
           Value(0), scores, line);
    if (key == 0) fetch_next_rows(q.at(b, h, first), q.stride, rows, sizes.d);
    allowed.exclude(scores, line, b, first, rows, key, count);
    draws.draw(b, h, first, rows, key, count, scratch.draws, scratch.rows);
    weigh_tile({rows, count, line, scores, scale.weights, scratch.rows.data(), draws.threshold(), keep,
                scratch.largest.data(), scratch.sum.data(), scratch.rescale.data()},
               weights);
    for (int64_t r = 0; key > 0 && r < rows; ++r)
      if (const Value factor = scratch.rescale[static_cast<size_t>(r)]; factor != 1)
        for (int64_t c = 0; c < e; ++c) scratch.out[static_cast<size_t>(r * e + c)] *= factor;
    gemm(rows, e, count, Value(1), with_zero_behind(weights, rows, count, line), {v.at(b, h, key), v.stride},
         Value(key > 0), scratch.out.data(), e);
  }
  for (Value& largest : scratch.largest) largest *= static_cast<Value>(kLogOf2) * scale.weights;
  log_rows(scratch.largest.data(), scratch.sum.data(), counted, -kNone, log_sum + first);
  for (int64_t r = 0; r < counted; ++r)
    if (!(scratch.sum[static_cast<size_t>(r)] > 0 && allowed.query(b, first + r))) log_sum[first + r] = -kNone;
  // NaN input comes out as NaN, by its sum; what is not wanted may hold anything.
  quotient_rows(counted, e, scratch.out.data(), e, scratch.sum.data(), allowed.query_flags(b, first),
                out.at(b, h, first), out.stride);
}

// Keys key .. key + count - 1 of one head against all rows: gradients of these keys and values, and their share of dq.
template <class Stored, class Value = Computed<Stored>>
void backward_keys(const HeadSizes& sizes, const AttentionOptions& options, const AllowedPairs& allowed,
                   const WeightDraws& draws, int64_t b, int64_t h, int64_t key, int64_t count, bool adds_to_q,
                   const Heads<const Stored>& gradient, const Heads<const Stored>& q, const Heads<const Stored>& k,
                   const Heads<const Stored>& v, const TileRows<Value>& dq, const Heads<Stored>& dk,
                   const Heads<Stored>& dv, const Value* log_sum, const Value* delta, Scratch<Stored>& scratch) {
  const ScoreScale<Stored> scale(options.scale);
  const auto keep = static_cast<Value>(draws.keep());
  const int64_t d = sizes.d, e = sizes.e, end = allowed.row_end(b), block = query_block(sizes.m),
                line = tile_line(sizes.m);
  // Causal rows before the first key of the block see none of it.
  const int64_t begin = options.mask.causal ? key / block * block : 0;
  if (begin >= end) {
    for (int64_t j = 0; j < count; ++j) {
      std::fill_n(dk.at(b, h, key + j), d, Stored(0));
      std::fill_n(dv.at(b, h, key + j), e, Stored(0));
    }
    return;
  }
  Value *const scores = scratch.scores.data(), *const slope = scratch.gradient.data();
  const TileRows<Value> to_k = rows_for(dk.at(b, h, key), dk.stride, count, d, scratch.dk),
                        to_v = rows_for(dv.at(b, h, key), dv.stride, count, e, scratch.dv);
  const TileSums<Stored> k_sums(to_k, count, d, scale.sums, scratch.turned_dk, line),
      v_sums(to_v, count, e, Value(1), scratch.turned_dv, line);
  const bool paired = v_sums.takes_pairs(gradient.stride) && k_sums.takes_pairs(q.stride);
  scratch.keys.pack(end - begin, count, d, scale.sums, {k.at(b, h, key), k.stride});
  scratch.turned_keys.pack(end - begin, d, count, scale.scores, {k.at(b, h, key), k.stride, true});
  scratch.turned_values.pack(end - begin, e, count, Value(1), {v.at(b, h, key), v.stride, true});
  for (int64_t first = begin; first < end; first += block) {
    const int64_t rows = std::min(block, end - first);
    gemm(rows, {q.at(b, h, first), q.stride}, scratch.turned_keys, Value(0), scores, line);
    gemm(rows, {gradient.at(b, h, first), gradient.stride}, scratch.turned_values, Value(0), slope, line);
    fetch_next_rows(q.at(b, h, first), q.stride, rows, d);
    fetch_next_rows(gradient.at(b, h, first), gradient.stride, rows, e);
    allowed.exclude(scores, line, b, first, rows, key, count);
    draws.draw(b, h, first, rows, key, count, scratch.draws, scratch.rows);
    const Operand<Stored> row_slopes{gradient.at(b, h, first), gradient.stride}, queries{q.at(b, h, first), q.stride};
    const auto row_at = [&](int64_t r) {
      return GradientRow<Value>{scores + r * line,
                                slope + r * line,
                                {scale.weights, static_cast<Value>(kLog2OfE) * log_sum[first + r],
                                 scratch.rows[static_cast<size_t>(r)], draws.threshold(), keep},
                                delta[first + r],
                                log_sum[first + r] != std::numeric_limits<Value>::infinity()};
    };
    Operand<Stored> factor{nullptr, line};
    if constexpr (kConverts<Stored>)
      if (paired) {
        factor =
            with_zero_behind(weigh_pairs(rows, count, line, scale.slopes, row_at, scratch.paired), rows, count, line);
        v_sums.add(0, scratch.paired.weights, row_slopes, first == begin);
        k_sums.add(0, scratch.paired.slopes, queries, first == begin);
      }
    if (!paired) {
      for (int64_t r = 0; r < rows; ++r) weigh(row_at(r), count, scale.slopes);
      v_sums.add(0, count, rows, scores, line, row_slopes, first == begin);
      k_sums.add(0, count, rows, slope, line, queries, first == begin);
      factor.data = factor_of<Stored>(slope, rows * line, scratch.factor);
    }
    gemm(rows, factor, scratch.keys, Value(adds_to_q), dq.data + first * dq.stride, dq.stride);
  }
  k_sums.finish();
  v_sums.finish();
  store_rows(to_k, count, d, dk.at(b, h, key), dk.stride);
  store_rows(to_v, count, e, dv.at(b, h, key), dv.stride);
}

}  // namespace

int64_t attention_pairs(int64_t n, int64_t m, bool causal) {
  if (!causal) return n * m;
  int64_t pairs = 0;
  const int64_t block = query_block(m);
  for (int64_t first = 0; first < n; first += block) {
    const int64_t rows = std::min(block, n - first);
    pairs += rows * std::min(m, first + rows);
  }
  return pairs;
}

AttentionForward attention_forward_cpu(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
                                       const AttentionOptions& options) {
  const at::Tensor q = with_rows(q_in), k = with_rows(k_in), v = with_rows(v_in);
  const HeadSizes sizes = head_sizes(q, k, v);
  const AllowedPairs allowed(options, sizes);
  const WeightDraws draws(options.dropout, sizes);
  AttentionForward result{
      new_heads(q, sizes.n, sizes.e), at::empty({sizes.b, sizes.h, sizes.n}, computed_options(q)), {}};
  const int64_t block = query_block(sizes.m), blocks = (sizes.n + block - 1) / block,
                units = sizes.b * sizes.h * blocks;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "attention", [&] {
    auto scratch = scratch_for<scalar_t>(workers_for(units), sizes, false, draws);
    const auto queries = reading<scalar_t>(q), keys = reading<scalar_t>(k), values = reading<scalar_t>(v);
    const auto out = writing<scalar_t>(result.out);
    auto* const log_sums = result.log_sum.mutable_data_ptr<Computed<scalar_t>>();
    for_units(units, std::min(block, sizes.n) * sizes.m * (sizes.d + sizes.e), [&](int64_t unit, int64_t worker) {
      const int64_t z = unit / blocks;
      forward_block<scalar_t>(sizes, options, allowed, draws, z / sizes.h, z % sizes.h, unit % blocks * block, queries,
                              keys, values, out, log_sums + z * sizes.n, scratch[static_cast<size_t>(worker)]);
    });
  });
  return result;
}

AttentionGradients attention_backward_cpu(const at::Tensor& gradient_in, const at::Tensor& q_in, const at::Tensor& k_in,
                                          const at::Tensor& v_in, const AttentionForward& forward,
                                          const AttentionOptions& options) {
  const at::Tensor q = with_rows(q_in), k = with_rows(k_in), v = with_rows(v_in), gradient = with_rows(gradient_in);
  const HeadSizes sizes = head_sizes(q, k, v);
  const AllowedPairs allowed(options, sizes);
  const WeightDraws draws(options.dropout, sizes, DrawnBy::kBackward);
  AttentionGradients result{new_heads(q, sizes.n, sizes.d), new_heads(k, sizes.m, sizes.d),
                            new_heads(v, sizes.m, sizes.e)};
  // Where samples and heads are fewer than threads, their keys are dealt out in parts that each make a dq of their own.
  const int64_t block = query_block(sizes.m), heads = sizes.b * sizes.h,
                key_blocks = (sizes.m + kKeyBlock - 1) / kKeyBlock;
  const int64_t parts = std::clamp<int64_t>((at::get_num_threads() + heads - 1) / std::max<int64_t>(heads, 1), 1,
                                            std::max<int64_t>(key_blocks, 1));
  const int64_t part_len = (key_blocks + parts - 1) / parts * kKeyBlock;
  std::vector<at::Tensor> shares;
  for (int64_t part = 0; parts > 1 && part < parts; ++part) shares.push_back(at::empty(q.sizes(), computed_options(q)));
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "attention_backward", [&] {
    using Value = Computed<scalar_t>;
    auto scratch = scratch_for<scalar_t>(workers_for(heads * parts), sizes, true, draws);
    const auto queries = reading<scalar_t>(q), keys = reading<scalar_t>(k), values = reading<scalar_t>(v);
    const auto slopes = reading<scalar_t>(gradient), outs = reading<scalar_t>(forward.out);
    const auto q_to = writing<scalar_t>(result.q), dk = writing<scalar_t>(result.k), dv = writing<scalar_t>(result.v);
    const auto* const log_sums = forward.log_sum.const_data_ptr<Value>();
    for_units(heads * parts, sizes.n * sizes.m * (sizes.d + sizes.e) / parts, [&](int64_t unit, int64_t worker) {
      Scratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
      const int64_t z = unit / parts, part = unit % parts, b = z / sizes.h, h = z % sizes.h;
      const TileRows<Value> dq =
          parts == 1 ? rows_for(q_to.at(b, h), q_to.stride, sizes.n, sizes.d, mine.dq)
                     : TileRows<Value>{writing<Value>(shares[static_cast<size_t>(part)]).at(b, h), sizes.d};
      const int64_t key_end = allowed.key_end(b), last = std::min(sizes.m, (part + 1) * part_len);
      // delta = sum of out * gradient over a row: what softmax's gradient takes off.
      row_products(allowed.query_end(b), sizes.e, slopes.at(b, h), slopes.stride, outs.at(b, h), outs.stride,
                   grown(mine.out, sizes.n));
      // Rows that no block below writes: without queries or keys, and before the first key block of a causal part.
      const int64_t first_key = part * part_len;
      const bool none = first_key >= std::min(last, key_end);
      const int64_t written_from = none ? sizes.n : options.mask.causal ? first_key / block * block : 0;
      const int64_t written_to = std::max(written_from, none ? sizes.n : allowed.query_end(b));
      const int64_t rows = parts == 1 ? allowed.query_end(b) : sizes.n;
      clear_heads(q_to, sizes.h, b, h, rows, sizes.n, sizes.d);
      for (int64_t i = 0; i < rows; ++i)
        if (i < written_from || i >= written_to) std::fill_n(dq.data + i * dq.stride, sizes.d, Value(0));
      const int64_t behind = std::max(first_key, key_end);
      clear_heads(dk, sizes.h, b, h, behind, last, sizes.d);
      clear_heads(dv, sizes.h, b, h, behind, last, sizes.e);
      for (int64_t key = first_key; key < std::min(last, key_end); key += kKeyBlock)
        backward_keys<scalar_t>(sizes, options, allowed, draws, b, h, key,
                                std::min(kKeyBlock, std::min(last, key_end) - key), key > first_key, slopes, queries,
                                keys, values, dq, dk, dv, log_sums + z * sizes.n, mine.out.data(), mine);
      if (parts == 1) store_rows(dq, rows, sizes.d, q_to.at(b, h), q_to.stride);
    });
  });
  for (size_t part = 1; part < shares.size(); ++part) shares[0].add_(shares[part]);
  if (parts > 1) result.q.copy_(shares[0]);
  return result;
}

}  // namespace xformer::kernels
