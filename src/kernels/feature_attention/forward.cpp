// The forward pass: the table of a head's keys and values, then its queries against that.
#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "kernels/cpu/units.h"
#include "kernels/feature_attention/causal.h"
#include "kernels/feature_attention/feature_tiles.h"

namespace xformer::kernels {

namespace {

// Where the largest y of keys is reached. Which key wins is decided by a product that comes out the same for equal
// keys wherever they stand, so that of equal ones the first does.
struct KeyWinner {
  double score = 0;
  int64_t key = -1, feature = -1;

  void offer(double other_score, int64_t other_key, int64_t other_feature) {
    if (key < 0 || other_score > score) *this = {other_score, other_key, other_feature};
  }
};

// Sums of one part of the keys of a head. kSoftmax: without the floor, relative to its own largest y.
template <class Value>
struct PartSums {
  Value* table = nullptr;     // [e+1,f]
  std::vector<Value> values;  // kSoftmax: sum of valid rows of v [e]
  Value largest = -std::numeric_limits<Value>::infinity();
  KeyWinner winner;
};

template <class Stored, class Value>
void find_winner(const FeaturePass<Stored>& pass, const Stored* x, int64_t first, int64_t rows, const bool* valid,
                 const FeatureScratch<Stored>& scratch, PartSums<Value>& sums) {
  const Value near = pass.nearly(sums.largest);
  for (int64_t r = 0; r < rows; ++r) {
    const Value largest = scratch.largest[static_cast<size_t>(r)];
    if ((valid != nullptr && !valid[r]) || !(largest >= near)) continue;
    const Value* const y = scratch.tile.data() + r * pass.f;
    const int64_t feature = std::find(y, y + pass.f, largest) - y;
    sums.winner.offer(pass.score_of(x + r * pass.keys.stride, feature), first + r, feature);
  }
}

template <class Stored, class Value>
void sum_keys(const FeaturePass<Stored>& pass, int64_t z, int64_t part, FeatureScratch<Stored>& scratch,
              PartSums<Value>& sums) {
  const int64_t b = z / pass.h, h = z % pass.h, f = pass.f, e = pass.e;
  const int64_t end = std::min((part + 1) * kPartRows, pass.valid_keys.end(b));
  Value *const table = sums.table, *const products = pass.table_sums(table, scratch);
  std::fill_n(table, (e + 1) * f, Value(0));
  std::fill_n(products, e * f, Value(0));
  if (pass.softmax) sums.values.assign(static_cast<size_t>(e), Value(0));
  for (int64_t first = part * kPartRows; first < end; first += pass.tile_rows) {
    const int64_t rows = std::min(pass.tile_rows, end - first);
    const bool* const valid = pass.flags(pass.valid_keys, b, first, rows);
    const Stored *const x = pass.keys.at(b, h, first), *const v = pass.values.at(b, h, first);
    pass.scores(x, pass.keys.stride, rows, scratch);
    fetch_next_rows(v, pass.values.stride, rows, e);
    if (pass.softmax) {
      const Value before = sums.largest;
      for (int64_t r = 0; r < rows; ++r)
        if (valid == nullptr || valid[r]) {
          sums.largest = std::max(sums.largest, scratch.largest[static_cast<size_t>(r)]);
          scratch.sums[static_cast<size_t>(r)] = 1;
        } else {
          scratch.sums[static_cast<size_t>(r)] = 0;
        }
      find_winner(pass, x, first, rows, valid, scratch, sums);
      if (sums.largest > before && first > part * kPartRows) {
        const Value factor = std::exp(before - sums.largest);
        for (int64_t i = 0; i < e * f; ++i) products[i] *= factor;
        for (int64_t i = 0; i < f; ++i) table[e * f + i] *= factor;
      }
      for (int64_t r = 0; r < rows; ++r) scratch.shift[static_cast<size_t>(r)] += sums.largest;
      const TileRows<const Value> wide = loaded_rows(v, pass.values.stride, rows, e, scratch.first_room);
      add_rows(sums.values.data(), 0, wide.data, wide.stride, rows, e, scratch.sums.data(), Value(1));
    }
    key_features(pass, {x, pass.keys.stride, rows, valid}, pass.softmax ? Value(0) : pass.floor(), table + e * f,
                 scratch);
    pass.count_sums(rows);
    pass.add_to_table(rows, {v, pass.values.stride}, table, scratch);
  }
  pass.finish_table(table, scratch);
}

// The table of a head from its parts, of which the first lies where the table does.
template <class Stored, class Value>
void join_parts(const FeaturePass<Stored>& pass, int64_t z, const PartSums<Value>* parts, Value* table, Value* largest,
                int64_t* winner) {
  constexpr Value kNone = -std::numeric_limits<Value>::infinity();
  const int64_t f = pass.f, e = pass.e;
  Value top = kNone;
  KeyWinner best;
  for (int64_t part = 0; pass.softmax && part < pass.key_parts; ++part) {
    top = std::max(top, parts[part].largest);
    const KeyWinner& one = parts[part].winner;
    if (one.key >= 0) best.offer(one.score, one.key, one.feature);
  }
  for (int64_t part = 0; part < pass.key_parts; ++part) {
    const Value factor = parts[part].largest == top ? Value(1) : std::exp(parts[part].largest - top);
    const Value* const from = parts[part].table;
    if (part > 0) {
      add_rows(table, 0, from, 0, 1, (e + 1) * f, &factor, Value(1));
      continue;
    }
    XF_ASSERT(from == table, "the first part's sums lie elsewhere");
    for (int64_t i = 0; factor != 1 && i < (e + 1) * f; ++i) table[i] *= factor;
  }
  if (!pass.softmax) return;
  const ValidRows& valid = pass.valid_keys;
  const int64_t b = z / pass.h;
  const auto count =
      static_cast<Value>(valid.defined() ? std::count(valid.flags(b), valid.flags(b) + pass.m, true) : pass.m);
  for (int64_t c = 0; c <= e; ++c) {
    Value sum = c == e ? count : Value(0);
    for (int64_t part = 0; c < e && part < pass.key_parts; ++part) sum += parts[part].values[static_cast<size_t>(c)];
    for (int64_t i = 0; i < f; ++i) table[c * f + i] += pass.floor() * sum;
  }
  *largest = top;
  winner[0] = best.key;
  winner[1] = best.feature;
}

template <class Stored, class Value>
void answer_queries(const FeaturePass<Stored>& pass, int64_t z, int64_t part, const Value* table,
                    const Heads<Stored>& out, Value* denominator, FeatureScratch<Stored>& scratch) {
  const int64_t b = z / pass.h, h = z % pass.h, f = pass.f, e = pass.e;
  const int64_t last = std::min((part + 1) * kPartRows, pass.n);
  const int64_t end = pass.valid_keys.end(b) == 0 ? 0 : std::min(last, pass.valid_queries.end(b));
  scratch.turned_table.pack(end - part * kPartRows, f, e, Value(1),
                            {factor_of<Stored>(table, e * f, scratch.table_factor), f, true});
  for (int64_t first = part * kPartRows; first < end; first += pass.tile_rows) {
    const int64_t rows = std::min(pass.tile_rows, end - first);
    const Stored* const x = pass.queries.at(b, h, first);
    pass.scores(x, pass.queries.stride, rows, scratch);
    for (int64_t r = 0; pass.softmax && r < rows; ++r)
      scratch.shift[static_cast<size_t>(r)] += scratch.largest[static_cast<size_t>(r)];
    const Stored* const features =
        query_features(pass, {x, pass.queries.stride, rows, nullptr}, table + e * f, scratch);
    pass.count_sums(rows);
    for (int64_t r = 0; r < rows; ++r) {
      const Value sum = scratch.dots[static_cast<size_t>(r)] + static_cast<Value>(pass.options.epsilon);
      denominator[first + r] = !pass.by_sum ? static_cast<Value>(pass.options.divisor) : sum == 0 ? Value(1) : sum;
    }
    const TileRows<Value> to = rows_for(out.at(b, h, first), out.stride, rows, e, scratch.result_room);
    gemm(rows, {features, f}, scratch.turned_table, Value(0), to.data, to.stride);
    const bool* const valid = pass.flags(pass.valid_queries, b, first, rows);
    quotient_rows(rows, e, to.data, to.stride, denominator + first, valid, out.at(b, h, first), out.stride);
  }
  const int64_t behind = std::max(part * kPartRows, end);
  clear_heads(out, pass.h, b, h, behind, last, e);
  std::fill(denominator + behind, denominator + last, Value(1));
}

}  // namespace

FeatureAttentionForward feature_attention_forward_cpu(const at::Tensor& q_in, const at::Tensor& k_in,
                                                      const at::Tensor& v_in, const FeatureAttentionOptions& options) {
  if (options.mask.causal) return causal_features_forward(q_in, k_in, v_in, options);
  const at::Tensor q = with_rows(q_in), k = with_rows(k_in), v = with_rows(v_in);
  FeatureAttentionForward result;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "feature_attention", [&] {
    using Value = Computed<scalar_t>;
    const FeaturePass<scalar_t> pass(q, k, v, options);
    const int64_t heads = pass.b * pass.h, size = (pass.e + 1) * pass.f;
    result.out = new_heads(q, pass.n, pass.e);
    result.table = at::empty({heads, pass.e + 1, pass.f}, computed_options(q));
    result.denominator = at::empty({heads, pass.n}, computed_options(q));
    result.largest = at::empty({pass.softmax ? heads : 0}, computed_options(q));
    result.winner = at::empty({pass.softmax ? heads : 0, 2}, q.options().dtype(at::kLong));
    auto* const tables = result.table.mutable_data_ptr<Value>();
    auto* const largest = result.largest.mutable_data_ptr<Value>();
    auto* const winners = result.winner.mutable_data_ptr<int64_t>();
    const auto out = writing<scalar_t>(result.out);
    auto* const denominators = result.denominator.mutable_data_ptr<Value>();
    auto scratch = pass.scratch_for(workers_for(heads * std::max(pass.query_parts, pass.key_parts)));

    at::Tensor later;  // sums of all parts but each head's first
    if (pass.key_parts > 1) later = at::empty({heads, pass.key_parts - 1, size}, computed_options(q));
    std::vector<PartSums<Value>> parts(static_cast<size_t>(heads * pass.key_parts));
    for_units(heads * pass.key_parts, pass.m * pass.f * (pass.d + pass.e) / pass.key_parts,
              [&](int64_t unit, int64_t worker) {
                const int64_t z = unit / pass.key_parts, part = unit % pass.key_parts;
                PartSums<Value>& sums = parts[static_cast<size_t>(unit)];
                sums.table = part == 0 ? tables + z * size
                                       : later.mutable_data_ptr<Value>() + (z * (pass.key_parts - 1) + part - 1) * size;
                sum_keys(pass, z, part, scratch[static_cast<size_t>(worker)], sums);
              });
    for_units(heads, pass.key_parts * size, [&](int64_t z, int64_t) {
      join_parts(pass, z, parts.data() + z * pass.key_parts, tables + z * size, largest + z, winners + 2 * z);
    });
    for_units(heads * pass.query_parts, pass.n * pass.f * (pass.d + pass.e) / pass.query_parts,
              [&](int64_t unit, int64_t worker) {
                const int64_t z = unit / pass.query_parts;
                answer_queries(pass, z, unit % pass.query_parts, tables + z * size, out, denominators + z * pass.n,
                               scratch[static_cast<size_t>(worker)]);
              });
  });
  return result;
}

}  // namespace xformer::kernels
