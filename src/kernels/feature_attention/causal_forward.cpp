// The forward pass of the causal form.
#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include "core/error.h"
#include "kernels/cpu/units.h"
#include "kernels/feature_attention/causal.h"

namespace xformer::kernels {

namespace {

template <class Stored, class Value>
void causal_head(const CausalPass<Stored>& pass, int64_t z, const Heads<Stored>& out, Value* denominator,
                 Value* largest, CausalScratch<Stored>& scratch) {
  const int64_t b = z / pass.h, h = z % pass.h, f = pass.f, e = pass.e, end = pass.row_end(b);
  std::fill(scratch.table.begin(), scratch.table.end(), Value(0));
  std::fill(scratch.apart.begin(), scratch.apart.end(), Value(0));
  Value before = pass.kNone, *const sums = scratch.sums.data(), *const dots = scratch.dots.data();
  for (int64_t first = 0; first < end; first += kCausalRows) {
    const CausalChunk at = pass.chunk(z, first);
    pass.load_keys(at, before, scratch, [](int64_t, Value) {});
    pass.load_queries(at, scratch, /*with_winners=*/false);
    const TileRows<Value> to = rows_for(out.at(b, h, first), out.stride, at.rows, e, scratch.result_room);
    std::fill_n(dots, at.rows, Value(0));
    if (at.earlier) {
      gemm(at.rows, e, f, Value(1), {pass.queries_factor(at, scratch), f}, {pass.table_factor(scratch), f, true},
           Value(0), to.data, to.stride);
      dots_of_rows(scratch.queries.data(), at.rows, f, scratch.table.data() + e * f, dots);
      pass.count_sums(at.rows);
      for (int64_t r = 0; pass.softmax && r < at.rows; ++r) {
        const auto i = static_cast<size_t>(r);
        const Value factor = pass.decay(before, scratch.c[i]), floor = pass.floor() * scratch.totals[i];
        Value* const row = to.data + r * to.stride;
        for (int64_t column = 0; column < e; ++column)
          row[column] = factor * row[column] + floor * scratch.apart[static_cast<size_t>(column)];
        dots[r] = factor * dots[r] + floor * scratch.apart[static_cast<size_t>(e)];
      }
    }
    if (at.keys > 0) {
      pass.weigh(at, scratch, sums);
      gemm(at.rows, e, at.keys, Value(1),
           {factor_of<Stored>(scratch.weights.data(), at.rows * at.keys, scratch.weights_factor), at.keys},
           {pass.values.at(b, h, first), pass.values.stride}, Value(at.earlier), to.data, to.stride);
      for (int64_t r = 0; r < at.rows; ++r) dots[r] += sums[r];
    }
    for (int64_t r = 0; r < at.rows; ++r) {
      const Value sum = dots[r] + static_cast<Value>(pass.options.epsilon);
      denominator[first + r] = !pass.by_sum ? static_cast<Value>(pass.options.divisor) : sum == 0 ? Value(1) : sum;
      if (pass.softmax) largest[first + r] = scratch.c[static_cast<size_t>(r)];
    }
    divide_rows(to.data, to.stride, at.rows, e, denominator + first, pass.query_flags(at));
    store_rows(to, at.rows, e, out.at(b, h, first), out.stride);
    if (at.later && at.keys > 0) pass.join_keys(at, before, scratch);
    if (pass.softmax) before = scratch.c[static_cast<size_t>(at.rows - 1)];
  }
  clear_rows(out, b, h, end, pass.n, e);
  std::fill(denominator + end, denominator + pass.n, Value(1));
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
    const int64_t heads = pass.b * pass.h;
    result.out = new_heads(q, pass.n, pass.e);
    result.denominator = at::empty({heads, pass.n}, computed_options(q));
    result.largest = at::empty({pass.softmax ? heads : 0, pass.n}, computed_options(q));
    const auto out = writing<scalar_t>(result.out);
    auto* const denominators = result.denominator.template mutable_data_ptr<Value>();
    auto* const largest = result.largest.template mutable_data_ptr<Value>();
    std::vector<CausalScratch<scalar_t>> scratch(static_cast<size_t>(workers_for(heads)),
                                                 CausalScratch<scalar_t>(pass.f, pass.e));
    for_units(heads, pass.n * pass.f * (pass.d + pass.e + kCausalRows), [&](int64_t z, int64_t worker) {
      causal_head(pass, z, out, denominators + z * pass.n, largest + z * pass.n * pass.softmax,
                  scratch[static_cast<size_t>(worker)]);
    });
  });
  return result;
}

}  // namespace xformer::kernels
