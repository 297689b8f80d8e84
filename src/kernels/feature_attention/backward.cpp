// The backward pass: gradients of queries and of the table, then of keys and values. Features are made again.
#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include "kernels/cpu/units.h"
#include "kernels/feature_attention/causal.h"
#include "kernels/feature_attention/feature_tiles.h"

namespace xformer::kernels {

namespace {

// Gradients of one part of a head's queries, and their share d_table of the table's gradient.
template <class Stored, class Value>
void queries_back(const FeaturePass<Stored>& pass, int64_t z, int64_t part, const Heads<const Stored>& gradient,
                  const Heads<const Stored>& out, const Value* table, const Value* denominator, const Heads<Stored>& dq,
                  Value* d_table, FeatureScratch<Stored>& scratch) {
  const int64_t b = z / pass.h, h = z % pass.h, f = pass.f, e = pass.e;
  const int64_t last = std::min((part + 1) * kPartRows, pass.n);
  const int64_t end = pass.valid_keys.end(b) == 0 ? 0 : std::min(last, pass.valid_queries.end(b));
  std::fill_n(d_table, (e + 1) * f, Value(0));
  std::fill_n(pass.table_sums(d_table, scratch), e * f, Value(0));
  scratch.table.pack(end - part * kPartRows, e, f, Value(1),
                     {factor_of<Stored>(table, e * f, scratch.table_factor), f});
  for (int64_t first = part * kPartRows; first < end; first += pass.tile_rows) {
    const int64_t rows = std::min(pass.tile_rows, end - first);
    const bool* const valid = pass.flags(pass.valid_queries, b, first, rows);
    const Stored* const numerator =
        numerator_gradients<Stored>(pass, {gradient.at(b, h, first), gradient.stride},
                                    {out.at(b, h, first), out.stride}, rows, denominator + first, valid, scratch);
    if (!pass.by_sum) std::fill_n(scratch.dots.begin(), rows, Value(0));
    const Stored* const queries = pass.queries.at(b, h, first);
    if (!pass.paired) {  // whose loops ask for rows themselves
      fetch_next_rows(gradient.at(b, h, first), gradient.stride, rows, e);
      fetch_next_rows(out.at(b, h, first), out.stride, rows, e);
    }
    const auto x = pass.scores(queries, pass.queries.stride, rows, scratch, FeaturePass<Stored>::Finds::kWinner);
    for (size_t r = 0; pass.softmax && r < static_cast<size_t>(rows); ++r) scratch.shift[r] += scratch.largest[r];
    gemm(rows, {numerator, e}, scratch.table, Value(0), scratch.gradient.data(), f);
    query_gradients(pass, {queries, pass.queries.stride, rows, valid}, table + e * f, d_table + e * f,
                    {dq.at(b, h, first), dq.stride}, scratch);
    pass.count_sums(2 * rows);
    pass.add_to_table(rows, {numerator, e}, d_table, scratch);
    pass.through_scores(x, rows, dq.at(b, h, first), dq.stride, scratch);
  }
  pass.finish_table(d_table, scratch);
  clear_heads(dq, pass.h, b, h, std::max(part * kPartRows, end), last, pass.d);
}

// Gradients of one part of a head's keys and values. Returns (kSoftmax) the sum of the gradient of y, which c takes.
template <class Stored, class Value>
double keys_back(const FeaturePass<Stored>& pass, int64_t z, int64_t part, const Value* d_table, Value largest,
                 const Heads<Stored>& dk, const Heads<Stored>& dv, FeatureScratch<Stored>& scratch) {
  const int64_t b = z / pass.h, h = z % pass.h, f = pass.f, e = pass.e;
  const int64_t last = std::min((part + 1) * kPartRows, pass.m);
  const int64_t end = pass.valid_queries.end(b) == 0 ? 0 : std::min(last, pass.valid_keys.end(b));
  const Stored* const table_factor = factor_of<Stored>(d_table, e * f, scratch.table_factor);
  scratch.table.pack(end - part * kPartRows, e, f, Value(1), {table_factor, f});
  scratch.turned_table.pack(end - part * kPartRows, f, e, Value(1), {table_factor, f, true});
  double sum = 0;
  for (int64_t first = part * kPartRows; first < end; first += pass.tile_rows) {
    const int64_t rows = std::min(pass.tile_rows, end - first);
    const Stored* const keys = pass.keys.at(b, h, first);
    const bool* const valid = pass.flags(pass.valid_keys, b, first, rows);
    const auto x = pass.scores(keys, pass.keys.stride, rows, scratch, FeaturePass<Stored>::Finds::kNothing);
    for (int64_t r = 0; pass.softmax && r < rows; ++r) scratch.shift[static_cast<size_t>(r)] += largest;
    gemm(rows, {pass.values.at(b, h, first), pass.values.stride}, scratch.table, Value(0), scratch.gradient.data(), f);
    fetch_next_rows(pass.values.at(b, h, first), pass.values.stride, rows, e);
    const Stored* const features = key_gradients(pass, {keys, pass.keys.stride, rows, valid}, d_table + e * f,
                                                 {dk.at(b, h, first), dk.stride}, scratch);
    pass.count_sums(rows);
    const TileRows<Value> to_v = rows_for(dv.at(b, h, first), dv.stride, rows, e, scratch.result_room);
    gemm(rows, {features, f}, scratch.turned_table, Value(0), to_v.data, to_v.stride);
    store_rows(to_v, rows, e, dv.at(b, h, first), dv.stride);
    pass.through_scores(x, rows, dk.at(b, h, first), dk.stride, scratch);
    for (int64_t r = 0; pass.softmax && r < rows; ++r) sum += static_cast<double>(scratch.sums[static_cast<size_t>(r)]);
  }
  clear_heads(dk, pass.h, b, h, std::max(part * kPartRows, end), last, pass.d);
  clear_heads(dv, pass.h, b, h, std::max(part * kPartRows, end), last, e);
  return sum;
}

}  // namespace

FeatureAttentionGradients feature_attention_backward_cpu(const at::Tensor& gradient_in, const at::Tensor& q_in,
                                                         const at::Tensor& k_in, const at::Tensor& v_in,
                                                         const FeatureAttentionForward& forward,
                                                         const FeatureAttentionOptions& options) {
  if (options.mask.causal) return causal_features_backward(gradient_in, q_in, k_in, v_in, forward, options);
  const at::Tensor q = with_rows(q_in), k = with_rows(k_in), v = with_rows(v_in), gradient = with_rows(gradient_in);
  FeatureAttentionGradients result;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "feature_attention_backward", [&] {
    using Value = Computed<scalar_t>;
    const FeaturePass<scalar_t> pass(q, k, v, options);
    const int64_t heads = pass.b * pass.h, size = (pass.e + 1) * pass.f;
    result = {new_heads(q, pass.n, pass.d), new_heads(k, pass.m, pass.d), new_heads(v, pass.m, pass.e)};
    const auto slopes = reading<scalar_t>(gradient), outs = reading<scalar_t>(forward.out);
    const auto dq = writing<scalar_t>(result.q), dk = writing<scalar_t>(result.k), dv = writing<scalar_t>(result.v);
    const auto* const tables = forward.table.const_data_ptr<Value>();
    const auto* const denominators = forward.denominator.const_data_ptr<Value>();
    const auto* const largest = forward.largest.const_data_ptr<Value>();
    auto scratch = pass.scratch_for(workers_for(heads * std::max(pass.query_parts, pass.key_parts)));

    const at::Tensor d_tables = at::empty({heads, pass.query_parts, size}, computed_options(q));
    auto* const shares = d_tables.mutable_data_ptr<Value>();
    for_units(heads * pass.query_parts, pass.n * pass.f * (pass.d + pass.e) / pass.query_parts,
              [&](int64_t unit, int64_t worker) {
                const int64_t z = unit / pass.query_parts;
                queries_back(pass, z, unit % pass.query_parts, slopes, outs, tables + z * size,
                             denominators + z * pass.n, dq, shares + unit * size, scratch[static_cast<size_t>(worker)]);
              });
    for_units(heads, pass.query_parts * size, [&](int64_t z, int64_t) {  // into the first part's
      Value* const sum = shares + z * pass.query_parts * size;
      for (int64_t part = 1; part < pass.query_parts; ++part)
        for (int64_t i = 0; i < size; ++i) sum[i] += sum[part * size + i];
    });
    std::vector<double> to_largest(static_cast<size_t>(heads * pass.key_parts));
    for_units(heads * pass.key_parts, pass.m * pass.f * (pass.d + pass.e) / pass.key_parts,
              [&](int64_t unit, int64_t worker) {
                const int64_t z = unit / pass.key_parts;
                to_largest[static_cast<size_t>(unit)] =
                    keys_back(pass, z, unit % pass.key_parts, shares + z * pass.query_parts * size,
                              pass.softmax ? largest[z] : Value(0), dk, dv, scratch[static_cast<size_t>(worker)]);
              });
    for (int64_t z = 0; pass.softmax && z < heads; ++z) {
      const int64_t* const winner = forward.winner.const_data_ptr<int64_t>() + 2 * z;
      if (winner[0] < 0) continue;
      double sum = 0;
      for (int64_t part = 0; part < pass.key_parts; ++part)
        sum += to_largest[static_cast<size_t>(z * pass.key_parts + part)];
      const auto factor = static_cast<Value>(-sum * static_cast<double>(pass.omega_scale));
      scalar_t* const place = dk.at(z / pass.h, z % pass.h, winner[0]);
      FeatureScratch<scalar_t>& mine = scratch.front();
      const TileRows<Value> row = rows_for(place, pass.d, 1, pass.d, mine.result_room);
      if constexpr (kConverts<scalar_t>) take(place, pass.d, row.data);
      add_rows(row.data, pass.d, loaded(pass.omega + winner[1] * pass.d, pass.d, mine.first_room), pass.d, 1, pass.d,
               &factor, Value(1));
      store_rows(row, 1, pass.d, place, pass.d);
    }
  });
  return result;
}

}  // namespace xformer::kernels
