// The backward pass of the causal form: gradients of queries with the tables of the forward pass, made again, then
// those of keys and values, chunk by chunk from the end. Weights and features are made again.
#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include "kernels/cpu/units.h"
#include "kernels/feature_attention/causal.h"

namespace xformer::kernels {

namespace {

// What both walks read.
template <class Stored>
struct CausalKnown {
  using Value = Computed<Stored>;
  Heads<const Stored> gradient, out;
  const Value *denominator, *largest;  // of the head, [n]; largest: kSoftmax
};

// Gradients of numerators and, by a sum, of denominators into scratch.numerator and scratch.dots; the former as a
// product takes them.
template <class Stored, class Value>
const Stored* quotients_back(const CausalPass<Stored>& pass, const CausalChunk& at, const CausalKnown<Stored>& known,
                             CausalScratch<Stored>& scratch, Value* d_sum) {
  const int64_t e = pass.e;
  const auto slopes = loaded_rows(known.gradient.at(at.b, at.h, at.first), known.gradient.stride, at.rows, e,
                                  scratch.first_room),
             outs = loaded_rows(known.out.at(at.b, at.h, at.first), known.out.stride, at.rows, e, scratch.second_room);
  gradients_of_quotient(slopes.data, slopes.stride, outs.data, outs.stride, at.rows, e, known.denominator + at.first,
                        pass.query_flags(at), scratch.numerator.data(), d_sum);
  if (!pass.by_sum) std::fill_n(d_sum, at.rows, Value(0));
  return factor_of<Stored>(scratch.numerator.data(), at.rows * e, scratch.numerator_factor);
}

// Gradients of the products within a chunk as a product takes them; scratch.sums gets the sums of those of weights.
template <class Stored, class Value>
const Stored* chunk_back(const CausalPass<Stored>& pass, const CausalChunk& at, const Stored* numerator,
                         const Value* d_sum, CausalScratch<Stored>& scratch) {
  gemm(at.rows, at.keys, pass.e, Value(1), {numerator, pass.e},
       {pass.values.at(at.b, at.h, at.first), pass.values.stride, true}, Value(0), scratch.slopes.data(), at.keys);
  slopes_of_chunk(scratch.slopes.data(), at.rows, at.keys, pass.key_flags(at), pass.c_of(scratch), d_sum,
                  scratch.sums.data());
  return factor_of<Stored>(scratch.slopes.data(), at.rows * at.keys, scratch.slopes_factor);
}

// The key that gave the c of the rows from it on.
struct CausalWinner {
  double score = 0;
  int64_t key = -1;
};

// Gradients of a head's queries; to_largest [n] gains what each key gets for a c that it gave.
template <class Stored, class Value>
void causal_queries_back(const CausalPass<Stored>& pass, int64_t z, const CausalKnown<Stored>& known,
                         const Heads<Stored>& dq, Value* to_largest, CausalScratch<Stored>& scratch) {
  const int64_t b = z / pass.h, h = z % pass.h, f = pass.f, e = pass.e, end = pass.row_end(b);
  std::fill(scratch.table.begin(), scratch.table.end(), Value(0));
  std::fill(scratch.apart.begin(), scratch.apart.end(), Value(0));
  Value before = pass.kNone, *const d_sum = scratch.dots.data(), *const slope = scratch.gradient.data();
  const Value* const z_row = scratch.table.data() + e * f;
  CausalWinner winner;
  int64_t winners[kCausalRows];
  for (int64_t first = 0; first < end; first += kCausalRows) {
    const CausalChunk at = pass.chunk(z, first);
    Value top = before;
    int64_t known_rows = 0;
    pass.load_keys(at, before, scratch, [&](int64_t r, Value largest) {
      while (known_rows < r) winners[known_rows++] = winner.key;
      if (!(largest >= pass.nearly(top)) && winner.key >= 0) return;
      top = std::max(top, largest);
      const int64_t feature = pass.winner_of(scratch.tile.data() + r * f, largest);
      if (feature < 0) return;
      const double score = pass.score_of(pass.keys.at(b, h, first + r), feature);
      if (winner.key < 0 || score >= winner.score) winner = {score, first + r};
    });
    while (known_rows < at.rows) winners[known_rows++] = winner.key;
    const auto x = pass.load_queries(at, scratch, /*with_winners=*/true);
    const Stored* const numerator = quotients_back(pass, at, known, scratch, d_sum);
    Value *const more = scratch.more.data(), *const factors = scratch.factors.data();
    std::fill_n(more, at.rows, Value(0));
    if (at.earlier) {
      gemm(at.rows, f, e, Value(1), {numerator, e}, {pass.table_factor(scratch), f}, Value(0), slope, f);
      for (int64_t r = 0; r < at.rows; ++r) {
        const auto i = static_cast<size_t>(r);
        factors[r] = pass.softmax ? pass.decay(before, scratch.c[i]) : Value(1);
        if (!pass.softmax) continue;
        more[r] = d_sum[r] * scratch.apart[static_cast<size_t>(e)];
        for (int64_t column = 0; column < e; ++column)
          more[r] +=
              scratch.numerator[static_cast<size_t>(r * e + column)] * scratch.apart[static_cast<size_t>(column)];
      }
      scale_rows(slope, f, at.rows, f, factors, d_sum, z_row);
      pass.count_sums(at.rows);
    } else {
      std::fill_n(slope, at.rows * f, Value(0));
    }
    if (at.keys > 0) {
      const Stored* const within = chunk_back(pass, at, numerator, d_sum, scratch);
      for (int64_t r = 0; r < at.rows; ++r) more[r] += scratch.sums[static_cast<size_t>(r)];
      gemm(at.rows, f, at.keys, Value(1), {within, at.keys}, {pass.keys_factor(at, scratch), f}, Value(1), slope, f);
    }
    for (int64_t r = 0; pass.softmax && r < at.rows; ++r) {
      if (winners[r] >= 0) {
        Value sum = 0;
        dots_of_rows(scratch.queries.data() + r * f, 1, f, slope + r * f, &sum);
        to_largest[winners[r]] -= sum;
      }
      for (int64_t i = 0; i < f; ++i) slope[r * f + i] += pass.floor() * more[r];
    }
    slopes_of_features(pass.options.map, scratch.queries.data(), slope, at.rows, f, pass.query_flags(at), pass.floor(),
                       scratch.sums.data());
    for (int64_t r = 0; pass.softmax && r < at.rows; ++r) {
      const auto i = static_cast<size_t>(r);
      if (scratch.winners[i] >= 0) slope[r * f + scratch.winners[i]] -= scratch.sums[i];
    }
    pass.through_scores(x, at.rows, dq.at(b, h, first), dq.stride, scratch);
    if (at.later && at.keys > 0) pass.join_keys(at, before, scratch);
    if (pass.softmax) before = scratch.c[static_cast<size_t>(at.rows - 1)];
  }
  clear_rows(dq, b, h, end, pass.n, pass.d);
}

// The chunk's queries join the table of what keys ahead of it get, relative to `before`, the c there.
template <class Stored, class Value>
void join_queries(const CausalPass<Stored>& pass, const CausalChunk& at, Value before, const Stored* numerator,
                  const Value* d_sum, CausalScratch<Stored>& scratch) {
  const int64_t f = pass.f, e = pass.e;
  Value *const table = scratch.table.data(), *const factors = scratch.factors.data(), *const more = scratch.more.data();
  if (pass.softmax) pass.scale_table(pass.decay(before, scratch.c[static_cast<size_t>(at.rows - 1)]), scratch);
  for (int64_t r = 0; r < at.rows; ++r) {
    factors[r] = pass.softmax ? pass.decay(before, scratch.c[static_cast<size_t>(r)]) : Value(1);
    more[r] = factors[r] * d_sum[r];
  }
  add_rows(table + e * f, 0, scratch.queries.data(), f, at.rows, f, more, Value(1));
  pass.count_sums(at.rows);
  scale_rows(scratch.queries.data(), f, at.rows, f, factors, static_cast<const Value*>(nullptr),
             static_cast<const Value*>(nullptr));
  gemm(e, f, at.rows, Value(1), {numerator, e, true}, {pass.queries_factor(at, scratch), f}, Value(1), table, f);
  if (!pass.softmax) return;
  add_rows(scratch.apart.data(), 0, scratch.numerator.data(), e, at.rows, e, scratch.totals.data(), Value(1));
  for (int64_t r = 0; r < at.rows; ++r)
    scratch.apart[static_cast<size_t>(e)] += scratch.totals[static_cast<size_t>(r)] * d_sum[r];
}

template <class Stored, class Value>
void causal_keys_back(const CausalPass<Stored>& pass, int64_t z, const CausalKnown<Stored>& known,
                      const Value* to_largest, const Heads<Stored>& dk, const Heads<Stored>& dv,
                      CausalScratch<Stored>& scratch) {
  const int64_t b = z / pass.h, h = z % pass.h, f = pass.f, e = pass.e;
  std::fill(scratch.table.begin(), scratch.table.end(), Value(0));
  std::fill(scratch.apart.begin(), scratch.apart.end(), Value(0));
  Value *const d_sum = scratch.dots.data(), *const slope = scratch.gradient.data(), *const table = scratch.table.data(),
               *const factors = scratch.factors.data(), *const more = scratch.more.data();
  const Value* const nothing = nullptr;
  const int64_t chunks = (pass.row_end(b) + kCausalRows - 1) / kCausalRows;
  for (int64_t first = (chunks - 1) * kCausalRows; first >= 0; first -= kCausalRows) {
    const CausalChunk at = pass.chunk(z, first);
    const Value before = pass.softmax && at.earlier ? known.largest[first - 1] : pass.kNone;
    pass.load_queries(at, scratch, /*with_winners=*/false);
    const auto x = pass.load_keys(at, before, scratch, [&](int64_t r, Value largest) {
      if (to_largest[first + r] != 0)
        scratch.winners[static_cast<size_t>(r)] = pass.winner_of(scratch.tile.data() + r * f, largest);
    });
    const Stored* const numerator = quotients_back(pass, at, known, scratch, d_sum);
    if (at.keys > 0) {
      const bool* const valid = pass.key_flags(at);
      const Stored* const v = pass.values.at(b, h, first);
      const TileRows<Value> to_v = rows_for(dv.at(b, h, first), dv.stride, at.keys, e, scratch.result_room);
      const Stored* const keys = pass.keys_factor(at, scratch);
      if (at.later) {
        const Value last = scratch.c[static_cast<size_t>(at.rows - 1)];
        for (int64_t j = 0; j < at.keys; ++j)
          factors[j] = pass.softmax ? pass.decay(scratch.c[static_cast<size_t>(j)], last) : Value(1);
        const Stored* const table_factor = pass.table_factor(scratch);
        gemm(at.keys, e, f, Value(1), {keys, f}, {table_factor, f, true}, Value(0), to_v.data, to_v.stride);
        gemm(at.keys, f, e, Value(1), {v, pass.values.stride}, {table_factor, f}, Value(0), slope, f);
        std::fill_n(more, at.keys, Value(1));
        scale_rows(slope, f, at.keys, f, factors, more, table + e * f);
        if (pass.softmax) {
          scale_rows(to_v.data, to_v.stride, at.keys, e, factors, nothing, nothing);
          for (int64_t j = 0; j < at.keys; ++j) more[j] = valid == nullptr || valid[j] ? pass.floor() : Value(0);
          // 0 apart: the same row for all
          add_rows(to_v.data, to_v.stride, scratch.apart.data(), 0, at.keys, e, more, Value(1));
        }
      }
      pass.weigh(at, scratch, scratch.sums.data());
      gemm(at.keys, e, at.rows, Value(1),
           {factor_of<Stored>(scratch.weights.data(), at.rows * at.keys, scratch.weights_factor), at.keys, true},
           {numerator, e}, Value(at.later), to_v.data, to_v.stride);
      store_rows(to_v, at.keys, e, dv.at(b, h, first), dv.stride);
      const Stored* const within = chunk_back(pass, at, numerator, d_sum, scratch);
      gemm(at.keys, f, at.rows, Value(1), {within, at.keys, true}, {pass.queries_factor(at, scratch), f},
           Value(at.later), slope, f);
      slopes_of_features(pass.options.map, scratch.keys.data(), slope, at.keys, f, valid, pass.key_floor(),
                         scratch.sums.data());
      for (int64_t r = 0; pass.softmax && r < at.keys; ++r)
        if (to_largest[first + r] != 0) slope[r * f + scratch.winners[static_cast<size_t>(r)]] += to_largest[first + r];
      pass.through_scores(x, at.keys, dk.at(b, h, first), dk.stride, scratch);
    }
    if (at.earlier) join_queries(pass, at, before, numerator, d_sum, scratch);
  }
  clear_rows(dk, b, h, pass.key_end(b), pass.n, pass.d);
  clear_rows(dv, b, h, pass.key_end(b), pass.n, e);
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
    const int64_t heads = pass.b * pass.h;
    result = {new_heads(q, pass.n, pass.d), new_heads(k, pass.n, pass.d), new_heads(v, pass.n, pass.e)};
    const auto dq = writing<scalar_t>(result.q), dk = writing<scalar_t>(result.k), dv = writing<scalar_t>(result.v);
    const at::Tensor to_largest = at::zeros({heads, pass.softmax ? pass.n : 0}, computed_options(q));
    auto* const to_largest_of = to_largest.template mutable_data_ptr<Value>();
    std::vector<CausalScratch<scalar_t>> scratch(static_cast<size_t>(workers_for(heads)),
                                                 CausalScratch<scalar_t>(pass.f, pass.e));
    for_units(heads, 2 * pass.n * pass.f * (pass.d + pass.e + kCausalRows), [&](int64_t z, int64_t worker) {
      const int64_t row = z * pass.n, row_of_largest = row * pass.softmax;
      const CausalKnown<scalar_t> known{reading<scalar_t>(slopes), reading<scalar_t>(forward.out),
                                        forward.denominator.template const_data_ptr<Value>() + row,
                                        forward.largest.template const_data_ptr<Value>() + row_of_largest};
      CausalScratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
      causal_queries_back(pass, z, known, dq, to_largest_of + row_of_largest, mine);
      causal_keys_back(pass, z, known, to_largest_of + row_of_largest, dk, dv, mine);
    });
  });
  return result;
}

}  // namespace xformer::kernels
