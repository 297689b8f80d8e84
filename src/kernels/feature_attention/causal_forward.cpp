// The forward pass of the causal form.
#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include "core/error.h"
#include "kernels/cpu/units.h"
#include "kernels/feature_attention/causal.h"

namespace xformer::kernels {

namespace {

// What the pass leaves behind of a head.
template <class Value>
struct CausalMade {
  Value *denominator, *largest, *tables;
  int64_t* winner;
};

// The key that gave the c of the rows from it on.
struct CausalWinner {
  double score = 0;
  int64_t key = -1;
};

// The chunk's c, and whose they are, from y in the tile of keys.
template <class Stored, class Value>
void follow_largest(const CausalPass<Stored>& pass, const CausalChunk<Value>& at, const Value* tile,
                    const CausalMade<Value>& made, CausalWinner& winner, CausalScratch<Stored>& scratch) {
  largest_of_columns(tile, pass.f, scratch.largest, scratch.winners);
  const bool* const valid = pass.key_flags(at);
  Value top = pass.before(at);
  for (int64_t r = 0; r < at.rows; ++r) {
    const Value y = scratch.largest[r];
    if (r < at.keys && (valid == nullptr || valid[r]) && !std::isnan(y) && (winner.key < 0 || y >= pass.nearly(top))) {
      const double score =
          pass.score_of(pass.keys.at(at.b, at.h, at.first + r), static_cast<int64_t>(scratch.winners[r]));
      if (winner.key < 0 || score >= winner.score) winner = {score, at.first + r};
      top = std::max(top, y);
    }
    made.largest[at.first + r] = top;
    made.winner[at.first + r] = winner.key;
  }
}

template <class Stored, class Value>
void causal_head(const CausalPass<Stored>& pass, int64_t z, const Heads<Stored>& out, const CausalMade<Value>& made,
                 CausalScratch<Stored>& scratch) {
  const int64_t b = z / pass.h, h = z % pass.h, f = pass.f, e = pass.e, end = pass.row_end(b);
  CausalTable<Value>& table = scratch.table;
  CausalTiles<Value>& tiles = scratch.chunks.front();
  CausalWinner winner;
  table.clear();
  for (int64_t first = 0; first < end; first += kCausalRows) {
    const auto at = pass.chunk(z, first, made.largest);
    if (at.earlier && first % kCausalBlock == 0)
      std::copy(table.all.begin(), table.all.end(), made.tables + (first / kCausalBlock - 1) * pass.table_size());
    if (at.keys > 0)
      pass.column_scores(pass.keys.at(b, h, first), pass.keys.stride, at.keys, tiles.keys.data(), scratch);
    if (pass.softmax) follow_largest(pass, at, tiles.keys.data(), made, winner, scratch);
    if (at.keys > 0) pass.key_features(at, tiles, scratch);
    pass.load_queries(at, tiles, scratch);
    const TileRows<Value> to = rows_for(out.at(b, h, first), out.stride, at.rows, e, scratch.result_room);
    Value* const dots = scratch.dots;
    std::fill_n(dots, kCausalRows, Value(0));
    if (at.earlier) {
      gemm(at.rows, e, f, Value(1), {pass.queries_factor(tiles, scratch), kCausalRows, true},
           {pass.table_factor(table, scratch), e}, Value(0), to.data, to.stride);
      if (pass.by_sum) dots_of_columns(tiles.queries.data(), f, table.z(), dots);
      pass.count_sums(at.rows);
      if (const Value* const factors = pass.decays_to_rows(at, scratch.factors); factors != nullptr)
        for (int64_t r = 0; r < at.rows; ++r) {
          for (int64_t column = 0; column < e; ++column) to.data[r * to.stride + column] *= factors[r];
          dots[r] *= factors[r];
        }
      if (pass.softmax) {
        Value* const floors = scratch.more;
        for (int64_t r = 0; r < at.rows; ++r) {
          floors[r] = pass.floor() * tiles.totals[r];
          dots[r] += floors[r] * table.apart()[e];
        }
        // 0 apart: the same row for all
        add_rows(to.data, to.stride, table.apart(), 0, at.rows, e, floors, Value(1));
      }
    }
    if (at.keys > 0) {
      const Stored* const weights = pass.weigh(at, tiles, scratch);
      gemm(at.rows, e, at.keys, Value(1), {weights, at.keys}, {pass.values.at(b, h, first), pass.values.stride},
           Value(at.earlier), to.data, to.stride);
      for (int64_t r = 0; r < at.rows; ++r) dots[r] += scratch.sums[r];
    }
    for (int64_t r = 0; r < at.rows; ++r) {
      const Value sum = dots[r] + static_cast<Value>(pass.options.epsilon);
      made.denominator[first + r] = !pass.by_sum ? static_cast<Value>(pass.options.divisor) : sum == 0 ? Value(1) : sum;
    }
    quotient_rows(at.rows, e, to.data, to.stride, made.denominator + first, pass.query_flags(at), out.at(b, h, first),
                  out.stride);
    if (at.later && at.keys > 0) pass.join_keys(at, tiles, scratch);
  }
  clear_heads(out, pass.h, b, h, end, pass.n, e);
  std::fill(made.denominator + end, made.denominator + pass.n, Value(1));
}

}  // namespace

FeatureAttentionForward causal_features_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                const FeatureAttentionOptions& options) {
  XF_ASSERT(q.size(2) == k.size(2), "causal sums need as many keys ({}) as queries ({})", k.size(2), q.size(2));
  const at::Tensor q_rows = with_rows(q), k_rows = with_rows(k), v_rows = with_rows(v);
  FeatureAttentionForward result;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "causal_features", [&] {
    using Value = Computed<scalar_t>;
    const CausalPass<scalar_t> pass(q_rows, k_rows, v_rows, options);
    const int64_t heads = pass.b * pass.h, size = pass.tables() * pass.table_size(), followed = pass.n * pass.softmax;
    result.out = new_heads(q, pass.n, pass.e);
    result.denominator = at::empty({heads, pass.n}, computed_options(q));
    result.largest = at::empty({heads, followed}, computed_options(q));
    result.winner = at::empty({heads, followed}, q.options().dtype(at::kLong));
    result.table = at::empty({heads, pass.tables(), pass.table_size()}, computed_options(q));
    const auto out = writing<scalar_t>(result.out);
    const CausalMade<Value> made{
        result.denominator.template mutable_data_ptr<Value>(), result.largest.template mutable_data_ptr<Value>(),
        result.table.template mutable_data_ptr<Value>(), result.winner.template mutable_data_ptr<int64_t>()};
    std::vector<CausalScratch<scalar_t>> scratch(static_cast<size_t>(workers_for(heads)),
                                                 CausalScratch<scalar_t>(pass.f, pass.e, 1));
    for_units(heads, pass.n * pass.f * (pass.d + pass.e + kCausalRows), [&](int64_t z, int64_t worker) {
      causal_head(pass, z, out,
                  CausalMade<Value>{made.denominator + z * pass.n, made.largest + z * followed, made.tables + z * size,
                                    made.winner + z * followed},
                  scratch[static_cast<size_t>(worker)]);
    });
  });
  return result;
}

}  // namespace xformer::kernels
