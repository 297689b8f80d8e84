// The backward pass of the causal form, block by block from the end (causal.h).
#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include "kernels/cpu/units.h"
#include "kernels/feature_attention/causal.h"

namespace xformer::kernels {

namespace {

// What the pass reads and writes of a head.
template <class Stored>
struct CausalGradients {
  using Value = Computed<Stored>;
  Heads<const Stored> gradient, out;
  const Value *denominator, *largest, *tables;  // [n], kSoftmax [n], [blocks,(f+1)(e+1)]
  const int64_t* winner;                        // kSoftmax [n]
  Heads<Stored> dq, dk, dv;
  Value* to_largest;  // kSoftmax [n], zeros: what each key gets for a c that it gave
};

// Gradients of numerators and, by a sum, of denominators.
template <class Stored, class Value>
void quotients_back(const CausalPass<Stored>& pass, const CausalChunk<Value>& at, const CausalGradients<Stored>& known,
                    CausalTiles<Value>& tiles, CausalScratch<Stored>& scratch) {
  const auto slopes = loaded_rows(known.gradient.at(at.b, at.h, at.first), known.gradient.stride, at.rows, pass.e,
                                  scratch.first_room),
             outs = loaded_rows(known.out.at(at.b, at.h, at.first), known.out.stride, at.rows, pass.e,
                                scratch.second_room);
  gradients_of_quotient(slopes.data, slopes.stride, outs.data, outs.stride, at.rows, pass.e,
                        known.denominator + at.first, pass.query_flags(at), tiles.numerator.data(), tiles.d_sum);
  std::fill(tiles.d_sum + (pass.by_sum ? at.rows : 0), tiles.d_sum + kCausalRows, Value(0));
}

template <class Stored, class Value>
const Stored* numerator_factor(const CausalPass<Stored>& pass, const CausalChunk<Value>& at,
                               const CausalTiles<Value>& tiles, CausalScratch<Stored>& scratch) {
  return factor_of<Stored>(tiles.numerator.data(), at.rows * pass.e, scratch.numerator_factor);
}

// From the gradient of y in scratch.gradient, whose sums over columns are `totals`, to that of rows x.
template <class Stored, class Value>
void through_column_scores(const CausalPass<Stored>& pass, const Stored* x, int64_t stride, int64_t rows,
                           const Value* totals, Stored* into, int64_t into_stride, CausalScratch<Stored>& scratch) {
  const auto scale = static_cast<Value>(pass.options.scale);
  const Value* const gradient = scratch.gradient.data();
  const TileRows<Value> to = rows_for(into, into_stride, rows, pass.d, scratch.result_room);
  if (pass.omega == nullptr) turn_over(pass.f, rows, gradient, kCausalRows, to.data, to.stride);
  else
    gemm(rows, pass.d, pass.f, pass.omega_scale,
         {factor_of<Stored>(gradient, pass.f * kCausalRows, scratch.gradient_factor), kCausalRows, true},
         {pass.omega, pass.d}, Value(0), to.data, to.stride);
  if (pass.softmax) {  // the share of |x'|^2 / 2
    const auto wide = loaded_rows(x, stride, rows, pass.d, scratch.x_room);
    add_rows(to.data, to.stride, wide.data, wide.stride, rows, pass.d, totals, -scale * scale);
  }
  store_rows(to, rows, pass.d, into, into_stride);
}

// Features of a chunk, and what its quotients give.
template <class Stored, class Value>
void load_chunk(const CausalPass<Stored>& pass, const CausalChunk<Value>& at, const CausalGradients<Stored>& known,
                CausalTiles<Value>& tiles, CausalScratch<Stored>& scratch) {
  if (at.keys > 0) {
    Value* const tile = tiles.keys.data();
    pass.column_scores(pass.keys.at(at.b, at.h, at.first), pass.keys.stride, at.keys, tile, scratch);
    // Keys that gave a c are their own row's winner.
    const int64_t* const winner = known.winner + at.first;
    const auto won = [&](int64_t j) { return winner[j] == at.first + j; };
    bool any = false;
    for (int64_t j = 0; pass.softmax && j < at.keys; ++j) any = any || won(j);
    if (any) largest_of_columns(tile, pass.f, scratch.largest, scratch.winners);
    for (int64_t j = 0; pass.softmax && j < at.keys; ++j)
      tiles.key_features[j] = won(j) ? static_cast<int64_t>(scratch.winners[j]) : -1;
    pass.key_features(at, tiles, scratch);
  }
  pass.load_queries(at, tiles, scratch);
  quotients_back(pass, at, known, tiles, scratch);
}

// Gradients of a chunk's queries, and of the products within it, which are kept.
template <class Stored, class Value>
void queries_back(const CausalPass<Stored>& pass, const CausalChunk<Value>& at, const CausalGradients<Stored>& known,
                  CausalTiles<Value>& tiles, CausalScratch<Stored>& scratch) {
  const int64_t f = pass.f, e = pass.e;
  Value *const slope = scratch.gradient.data(), *const more = scratch.more, *const times = scratch.times;
  const Stored* const numerator = numerator_factor(pass, at, tiles, scratch);
  std::fill_n(more, kCausalRows, Value(0));
  std::fill_n(times, kCausalRows, Value(0));
  if (at.earlier) {
    gemm(f, at.rows, e, Value(1), {pass.table_factor(scratch.table, scratch), e}, {numerator, e, true}, Value(0), slope,
         kCausalRows);
    const Value *const factors = pass.decays_to_rows(at, scratch.factors), *const apart = scratch.table.apart();
    if (factors != nullptr) scale_columns(slope, f, factors, slope);
    if (pass.softmax) dots_of_rows(tiles.numerator.data(), at.rows, e, apart, more);
    for (int64_t r = 0; r < at.rows; ++r) {
      times[r] = factors == nullptr ? tiles.d_sum[r] : factors[r] * tiles.d_sum[r];
      if (pass.softmax) more[r] += tiles.d_sum[r] * apart[e];
    }
    pass.count_sums(at.rows);
  }
  if (at.keys > 0) {
    gemm(at.rows, at.keys, e, Value(1), {numerator, e},
         {pass.values.at(at.b, at.h, at.first), pass.values.stride, true}, Value(0), tiles.slopes.data(), at.keys);
    slopes_of_chunk(tiles.slopes.data(), at.rows, at.keys, pass.key_flags(at), at.c, tiles.d_sum, scratch.sums);
    for (int64_t r = 0; r < at.rows; ++r) more[r] += scratch.sums[r];
    gemm(f, at.rows, at.keys, Value(1), {pass.keys_factor(tiles, scratch), kCausalRows},
         {factor_of<Stored>(tiles.slopes.data(), at.rows * at.keys, scratch.weights_factor), at.keys, true},
         Value(at.earlier), slope, kCausalRows);
  } else if (!at.earlier) {
    std::fill_n(slope, kCausalRows * f, Value(0));
  }
  for (int64_t r = 0; r < at.rows; ++r) more[r] *= pass.floor();
  slopes_of_columns(
      pass.options.map, tiles.queries.data(), slope, f,
      {times, scratch.table.z(), pass.softmax ? more : nullptr, pass.kept(pass.query_flags(at), at.rows, scratch.keep)},
      pass.floor(), scratch.dots, scratch.sums);
  for (int64_t r = 0; pass.softmax && r < at.rows; ++r) {
    if (const int64_t key = known.winner[at.first + r]; key >= 0) known.to_largest[key] -= scratch.dots[r];
    slope[tiles.query_features[r] * kCausalRows + r] -= scratch.sums[r];
  }
  through_column_scores(pass, pass.queries.at(at.b, at.h, at.first), pass.queries.stride, at.rows, scratch.sums,
                        known.dq.at(at.b, at.h, at.first), known.dq.stride, scratch);
}

// Gradients of a chunk's keys and values.
template <class Stored, class Value>
void keys_back(const CausalPass<Stored>& pass, const CausalChunk<Value>& at, const CausalGradients<Stored>& known,
               CausalTiles<Value>& tiles, CausalScratch<Stored>& scratch) {
  const int64_t f = pass.f, e = pass.e;
  Value *const slope = scratch.gradient.data(), *const times = scratch.times, *const more = scratch.more;
  const Stored *const v = pass.values.at(at.b, at.h, at.first), *const keys = pass.keys_factor(tiles, scratch),
                      *const numerator = numerator_factor(pass, at, tiles, scratch);
  const bool* const valid = pass.key_flags(at);
  const TileRows<Value> to_v =
      rows_for(known.dv.at(at.b, at.h, at.first), known.dv.stride, at.keys, e, scratch.result_room);
  std::fill_n(times, kCausalRows, Value(0));
  if (at.later) {
    const Stored* const table = pass.table_factor(scratch.behind, scratch);
    gemm(at.keys, e, f, Value(1), {keys, kCausalRows, true}, {table, e}, Value(0), to_v.data, to_v.stride);
    gemm(f, at.keys, e, Value(1), {table, e}, {v, pass.values.stride, true}, Value(0), slope, kCausalRows);
    std::fill_n(times, kCausalRows, Value(1));
    if (const Value* const factors = pass.decays_of_keys(at, scratch.factors); factors != nullptr) {
      scale_columns(slope, f, factors, slope);
      std::copy_n(factors, kCausalRows, times);
      for (int64_t j = 0; j < at.keys; ++j)
        for (int64_t column = 0; column < e; ++column) to_v.data[j * to_v.stride + column] *= factors[j];
    }
    if (pass.softmax) {
      for (int64_t j = 0; j < at.keys; ++j) more[j] = valid == nullptr || valid[j] ? pass.floor() : Value(0);
      // 0 apart: the same row for all
      add_rows(to_v.data, to_v.stride, scratch.behind.apart(), 0, at.keys, e, more, Value(1));
    }
  }
  gemm(at.keys, e, at.rows, Value(1), {pass.weigh(at, tiles, scratch), at.keys, true}, {numerator, e}, Value(at.later),
       to_v.data, to_v.stride);
  store_rows(to_v, at.keys, e, known.dv.at(at.b, at.h, at.first), known.dv.stride);
  gemm(f, at.keys, at.rows, Value(1), {pass.queries_factor(tiles, scratch), kCausalRows},
       {factor_of<Stored>(tiles.slopes.data(), at.rows * at.keys, scratch.weights_factor), at.keys}, Value(at.later),
       slope, kCausalRows);
  slopes_of_columns(pass.options.map, tiles.keys.data(), slope, f,
                    {times, scratch.behind.z(), nullptr, pass.kept(valid, at.keys, scratch.keep)}, pass.key_floor(),
                    scratch.dots, scratch.sums);
  for (int64_t j = 0; pass.softmax && j < at.keys; ++j)
    if (tiles.key_features[j] >= 0) slope[tiles.key_features[j] * kCausalRows + j] += known.to_largest[at.first + j];
  through_column_scores(pass, pass.keys.at(at.b, at.h, at.first), pass.keys.stride, at.keys, scratch.sums,
                        known.dk.at(at.b, at.h, at.first), known.dk.stride, scratch);
}

// The chunk's queries join the table of what keys ahead of it get, relative to the c there.
template <class Stored, class Value>
void join_queries(const CausalPass<Stored>& pass, const CausalChunk<Value>& at, const CausalTiles<Value>& tiles,
                  CausalScratch<Stored>& scratch) {
  CausalTable<Value>& behind = scratch.behind;
  if (pass.softmax) behind.scale(pass.decay(pass.before(at), at.last()));
  pass.join(tiles.queries.data(), at.rows, pass.decays_to_rows(at, scratch.factors), tiles.d_sum,
            {numerator_factor(pass, at, tiles, scratch), pass.e}, behind, scratch);
  if (!pass.softmax) return;
  add_rows(behind.apart(), 0, tiles.numerator.data(), pass.e, at.rows, pass.e, tiles.totals, Value(1));
}

template <class Stored>
void causal_head_back(const CausalPass<Stored>& pass, int64_t z, const CausalGradients<Stored>& known,
                      CausalScratch<Stored>& scratch) {
  const int64_t b = z / pass.h, h = z % pass.h, end = pass.row_end(b);
  scratch.behind.clear();
  for (int64_t block = (end + kCausalBlock - 1) / kCausalBlock - 1; block >= 0; --block) {
    const int64_t start = block * kCausalBlock;
    const int64_t chunks = (std::min(kCausalBlock, end - start) + kCausalRows - 1) / kCausalRows;
    if (block == 0) scratch.table.clear();
    else std::copy_n(known.tables + (block - 1) * pass.table_size(), pass.table_size(), scratch.table.all.data());
    for (int64_t i = 0; i < chunks; ++i) {
      const auto at = pass.chunk(z, start + i * kCausalRows, known.largest);
      auto& tiles = scratch.chunks[static_cast<size_t>(i)];
      load_chunk(pass, at, known, tiles, scratch);
      queries_back(pass, at, known, tiles, scratch);
      if (i + 1 < chunks && at.keys > 0) pass.join_keys(at, tiles, scratch);
    }
    for (int64_t i = chunks - 1; i >= 0; --i) {
      const auto at = pass.chunk(z, start + i * kCausalRows, known.largest);
      auto& tiles = scratch.chunks[static_cast<size_t>(i)];
      if (at.keys > 0) keys_back(pass, at, known, tiles, scratch);
      if (at.earlier) join_queries(pass, at, tiles, scratch);
    }
  }
  clear_heads(known.dq, pass.h, b, h, end, pass.n, pass.d);
  clear_heads(known.dk, pass.h, b, h, pass.key_end(b), pass.n, pass.d);
  clear_heads(known.dv, pass.h, b, h, pass.key_end(b), pass.n, pass.e);
}

}  // namespace

FeatureAttentionGradients causal_features_backward(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k,
                                                   const at::Tensor& v, const FeatureAttentionForward& forward,
                                                   const FeatureAttentionOptions& options) {
  const at::Tensor q_rows = with_rows(q), k_rows = with_rows(k), v_rows = with_rows(v), slopes = with_rows(gradient);
  FeatureAttentionGradients result;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "causal_features_backward", [&] {
    using Value = Computed<scalar_t>;
    const CausalPass<scalar_t> pass(q_rows, k_rows, v_rows, options);
    const int64_t heads = pass.b * pass.h, followed = pass.n * pass.softmax;
    result = {new_heads(q, pass.n, pass.d), new_heads(k, pass.n, pass.d), new_heads(v, pass.n, pass.e)};
    const at::Tensor to_largest = at::zeros({heads, followed}, computed_options(q));
    const CausalGradients<scalar_t> all{reading<scalar_t>(slopes),
                                        reading<scalar_t>(forward.out),
                                        forward.denominator.template const_data_ptr<Value>(),
                                        forward.largest.template const_data_ptr<Value>(),
                                        forward.table.template const_data_ptr<Value>(),
                                        forward.winner.template const_data_ptr<int64_t>(),
                                        writing<scalar_t>(result.q),
                                        writing<scalar_t>(result.k),
                                        writing<scalar_t>(result.v),
                                        to_largest.template mutable_data_ptr<Value>()};
    const int64_t chunks = (std::min(pass.n, kCausalBlock) + kCausalRows - 1) / kCausalRows;
    std::vector<CausalScratch<scalar_t>> scratch(static_cast<size_t>(workers_for(heads)),
                                                 CausalScratch<scalar_t>(pass.f, pass.e, chunks));
    for_units(heads, 2 * pass.n * pass.f * (pass.d + pass.e + kCausalRows), [&](int64_t z, int64_t worker) {
      CausalGradients<scalar_t> known = all;
      known.denominator += z * pass.n;
      known.largest += z * followed;
      known.tables += z * pass.tables() * pass.table_size();
      known.winner += z * followed;
      known.to_largest += z * followed;
      causal_head_back(pass, z, known, scratch[static_cast<size_t>(worker)]);
    });
  });
  return result;
}

}  // namespace xformer::kernels
