// Additive attention on the CPU: a tile of rows against all their keys, whose channels lie side by side so that the
// loops over keys vectorise.
#include "kernels/additive_attention/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/attention/cpu.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/tile_sums.h"
#include "kernels/cpu/units.h"
#include "kernels/cpu/valid_rows.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kAdditiveRows = 16;  // of a tile

// What both passes share: sizes, and which keys a tile reads.
struct AdditivePass {
  AdditivePass(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AdditiveAttentionOptions& options)
      : b(q.size(0)),
        h(q.size(1)),
        n(q.size(2)),
        m(k.size(2)),
        d(q.size(3)),
        e(v.size(3)),
        tiles((n + kAdditiveRows - 1) / kAdditiveRows),
        causal(options.mask.causal),
        keys(options.mask.key_valid, m),
        queries(options.query_valid, n),
        draws(options.dropout, at::empty({1}, at::kByte).expand({b, h, n, m})) {}

  [[nodiscard]] int64_t rows(int64_t first) const { return std::min(kAdditiveRows, n - first); }
  // Keys that a tile's rows read, and of them those that one row reads.
  [[nodiscard]] int64_t columns(int64_t sample, int64_t first) const {
    const int64_t end = keys.end(sample);
    return causal ? std::min(end, first + rows(first)) : end;
  }
  [[nodiscard]] int64_t columns_of_row(int64_t row, int64_t columns) const {
    return causal ? std::min(columns, row + 1) : columns;
  }
  void count(int64_t first, int64_t columns, int64_t times) const {
    add_executed_flops(2 * times * rows(first) * columns * d);
  }

  // Minus infinity for keys that are not valid.
  template <class Value>
  void forbid(int64_t sample, int64_t columns, Value* scores) const {
    if (keys.all(sample, 0, columns)) return;
    for (int64_t j = 0; j < columns; ++j)
      if (!keys.at(sample, j)) scores[j] = -std::numeric_limits<Value>::infinity();
  }
  // Of a head's keys [d,m]; those that are not valid have no say in whether they may be taken, and are zeros.
  template <class Value>
  bool key_powers(int64_t sample, const Value* rows, std::vector<Value>& powers) const {
    const bool* const valid = keys.defined() ? keys.flags(sample) : nullptr;
    Value* const to = grown(powers, d * m);
    std::copy_n(rows, d * m, to);
    for (int64_t c = 0; valid != nullptr && c < d; ++c)
      for (int64_t j = 0; j < m; ++j)
        if (!valid[j]) to[c * m + j] = 0;
    return doubled_powers(to, d * m);
  }
  [[nodiscard]] int64_t place(int64_t sample, int64_t head, int64_t row) const { return (sample * h + head) * n + row; }

  int64_t b, h, n, m, d, e, tiles;
  bool causal;
  ValidRows keys, queries;
  ElementDraws draws;
};

template <class Stored>
struct AdditiveScratch {
  using Value = Computed<Stored>;
  std::vector<Value> weights, slopes;
  std::vector<Value> powers, query_powers;     // e^2k of a head's keys, e^2q of a row
  bool has_powers = false;                     // of the keys
  std::vector<Value> query, out, slope, dq;    // rows on their way from or to where they are stored
  std::vector<Value> keys, dk, dv, turned_dv;  // of a head; the last is TileSums' room
  std::vector<Stored> factor;                  // weights as products take them
  int64_t head = -1;                           // b h + h, of keys forwards
  std::vector<uint16_t> draws;

  AdditiveRow<Value> with_powers(const Value* query, int64_t d) {
    Value* const to = grown(query_powers, d);
    std::copy_n(query, d, to);
    return {query, doubled_powers(to, d) ? to : nullptr};
  }
};

// k [b,h,m,d] with keys side by side: [b,h,d,m].
at::Tensor channels_of(const at::Tensor& k) { return k.transpose(2, 3).contiguous(); }

}  // namespace

int64_t additive_attention_pairs(int64_t queries, int64_t keys, bool causal) {
  if (!causal) return queries * keys;
  int64_t pairs = 0;
  for (int64_t first = 0; first < queries; first += kAdditiveRows) {
    const int64_t rows = std::min(kAdditiveRows, queries - first);
    pairs += rows * std::min(keys, first + rows);
  }
  return pairs;
}

AdditiveAttentionForward additive_attention_forward_cpu(const at::Tensor& q_in, const at::Tensor& k_in,
                                                        const at::Tensor& v_in, const at::Tensor& w_in,
                                                        const AdditiveAttentionOptions& options) {
  const at::Tensor q = with_rows(q_in), k = channels_of(k_in), v = with_rows(v_in), w = w_in.contiguous();
  const AdditivePass pass(q, k_in, v, options);
  AdditiveAttentionForward result{new_heads(q, pass.n, pass.e),
                                  at::empty({pass.b, pass.h, pass.n}, computed_options(q))};
  const int64_t units = pass.b * pass.h * pass.tiles;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "additive_attention", [&] {
    using Value = Computed<scalar_t>;
    std::vector<AdditiveScratch<scalar_t>> scratch(static_cast<size_t>(workers_for(units)));
    const auto queries = reading<scalar_t>(q), values = reading<scalar_t>(v);
    const auto* const keys = k.const_data_ptr<scalar_t>();
    const auto* const w_rows = w.const_data_ptr<Value>();
    const auto out = writing<scalar_t>(result.out);
    auto* const log_sums = result.log_sum.mutable_data_ptr<Value>();
    const auto keep = static_cast<Value>(pass.draws.keep());
    constexpr Value kInfinite = std::numeric_limits<Value>::infinity();
    for_units(units, kAdditiveRows * pass.m * 8 * pass.d, [&](int64_t unit, int64_t worker) {
      auto& mine = scratch[static_cast<size_t>(worker)];
      const int64_t z = unit / pass.tiles, sample = z / pass.h, head = z % pass.h;
      const int64_t first = unit % pass.tiles * kAdditiveRows, rows = pass.rows(first);
      const int64_t columns = pass.columns(sample, first);
      const bool known = std::exchange(mine.head, z) == z;
      const int64_t table = pass.d * pass.m;
      const Value* const k_rows =
          kConverts<scalar_t> && known ? mine.keys.data() : loaded(keys + z * table, table, mine.keys);
      if (!known) mine.has_powers = pass.key_powers(sample, k_rows, mine.powers);
      const AdditiveRow<Value> k_of{k_rows, mine.has_powers ? mine.powers.data() : nullptr};
      const TileRows<const Value> query =
          loaded_rows(queries.at(sample, head, first), queries.stride, rows, pass.d, mine.query);
      mine.weights.assign(static_cast<size_t>(rows * columns), Value(0));
      Value sums[kAdditiveRows] = {};
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t row = first + r, seen = pass.columns_of_row(row, columns);
        Value* const scores = mine.weights.data() + r * columns;
        Value& log_sum = log_sums[pass.place(sample, head, row)];
        log_sum = kInfinite;
        if (!pass.queries.at(sample, row) || seen == 0) continue;
        additive_scores(mine.with_powers(query.data + r * query.stride, pass.d), w_rows + head * pass.d, pass.d, k_of,
                        pass.m, seen, scores);
        pass.forbid(sample, seen, scores);
        const Value largest = row_largest(scores, seen, -kInfinite);
        if (largest == -kInfinite) {
          std::fill_n(scores, seen, Value(0));
          continue;
        }
        const uint16_t* const draws = pass.draws.draw(pass.place(sample, head, row) * pass.m, seen, mine.draws);
        sums[r] = row_weights(scores, seen, natural_weights(largest, draws, pass.draws.threshold(), keep), scores);
        log_sum = largest + std::log(sums[r]);
      }
      pass.count(first, columns, 1);
      scalar_t* const stored = out.at(sample, head, first);
      const TileRows<Value> to = rows_for(stored, out.stride, rows, pass.e, mine.out);
      if (columns > 0)
        gemm(rows, pass.e, columns, Value(1),
             {factor_of<scalar_t>(mine.weights.data(), rows * columns, mine.factor), columns},
             {values.at(sample, head), values.stride}, Value(0), to.data, to.stride);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < pass.e; ++c) {
          Value& one = to.data[r * to.stride + c];
          one = sums[r] == 0 ? Value(0) : one / sums[r];
        }
      store_rows(to, rows, pass.e, stored, out.stride);
    });
  });
  return result;
}

AdditiveAttentionGradients additive_attention_backward_cpu(const at::Tensor& gradient_in, const at::Tensor& q_in,
                                                           const at::Tensor& k_in, const at::Tensor& v_in,
                                                           const at::Tensor& w_in,
                                                           const AdditiveAttentionForward& forward,
                                                           const AdditiveAttentionOptions& options) {
  const at::Tensor q = with_rows(q_in), k = channels_of(k_in), v = with_rows(v_in), w = w_in.contiguous();
  const at::Tensor gradient = with_rows(gradient_in), made = with_rows(forward.out);
  const AdditivePass pass(q, k_in, v, options);
  const at::Tensor dq = new_heads(q, pass.n, pass.d), dv = new_heads(q, pass.m, pass.e);
  const at::Tensor dk = at::empty({pass.b, pass.h, pass.d, pass.m}, q.options());
  const at::Tensor dw = at::zeros({pass.b, pass.h, pass.d}, computed_options(q));
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "additive_attention_backward", [&] {
    using Value = Computed<scalar_t>;
    std::vector<AdditiveScratch<scalar_t>> scratch(static_cast<size_t>(workers_for(pass.b * pass.h)));
    const auto queries = reading<scalar_t>(q), values = reading<scalar_t>(v);
    const auto given = reading<scalar_t>(gradient), out = reading<scalar_t>(made);
    const auto to_q = writing<scalar_t>(dq), to_v = writing<scalar_t>(dv);
    const auto* const keys = k.const_data_ptr<scalar_t>();
    const auto* const w_rows = w.const_data_ptr<Value>();
    auto* const to_k = dk.mutable_data_ptr<scalar_t>();
    auto* const to_w = dw.mutable_data_ptr<Value>();
    const auto* const log_sums = forward.log_sum.const_data_ptr<Value>();
    const auto keep = static_cast<Value>(pass.draws.keep());
    // A head's keys gain from all of its rows: one thread adds them up, tile after tile.
    for_units(pass.b * pass.h, pass.n * pass.m * 16 * pass.d, [&](int64_t z, int64_t worker) {
      auto& mine = scratch[static_cast<size_t>(worker)];
      const int64_t sample = z / pass.h, head = z % pass.h, table = pass.d * pass.m;
      const Value *const w_row = w_rows + head * pass.d, *const k_rows = loaded(keys + z * table, table, mine.keys);
      const bool has_powers = pass.key_powers(sample, k_rows, mine.powers);
      const AdditiveRow<Value> k_of{k_rows, has_powers ? mine.powers.data() : nullptr};
      Value* const k_sums = place_for(to_k + z * table, table, mine.dk);
      std::fill_n(k_sums, table, Value(0));
      const TileRows<Value> v_rows = rows_for(to_v.at(sample, head), to_v.stride, pass.m, pass.e, mine.dv);
      const TileSums<scalar_t> v_sums(v_rows, pass.m, pass.e, Value(1), mine.turned_dv);
      v_sums.clear();
      for (int64_t first = 0; first < pass.n; first += kAdditiveRows) {
        const int64_t rows = pass.rows(first), columns = pass.columns(sample, first);
        const TileRows<Value> q_sums = rows_for(to_q.at(sample, head, first), to_q.stride, rows, pass.d, mine.dq);
        for (int64_t r = 0; r < rows; ++r) std::fill_n(q_sums.data + r * q_sums.stride, pass.d, Value(0));
        if (columns > 0) {
          mine.weights.assign(static_cast<size_t>(rows * columns), Value(0));
          mine.slopes.resize(std::max(mine.slopes.size(), mine.weights.size()));
          const Operand<scalar_t> slope_rows{given.at(sample, head, first), given.stride};
          gemm(rows, columns, pass.e, Value(1), slope_rows, {values.at(sample, head), values.stride, true}, Value(0),
               mine.slopes.data(), columns);
          const auto query = loaded_rows(queries.at(sample, head, first), queries.stride, rows, pass.d, mine.query),
                     made_rows = loaded_rows(out.at(sample, head, first), out.stride, rows, pass.e, mine.out),
                     given_rows = loaded_rows(slope_rows.data, slope_rows.stride, rows, pass.e, mine.slope);
          for (int64_t r = 0; r < rows; ++r) {
            const int64_t row = first + r, seen = pass.columns_of_row(row, columns);
            const Value log_sum = log_sums[pass.place(sample, head, row)];
            if (std::isinf(log_sum)) continue;
            Value *const scores = mine.weights.data() + r * columns, *const slopes = mine.slopes.data() + r * columns;
            const AdditiveRow<Value> q_row = mine.with_powers(query.data + r * query.stride, pass.d);
            additive_scores(q_row, w_row, pass.d, k_of, pass.m, seen, scores);
            pass.forbid(sample, seen, scores);
            // What softmax's gradient takes off: the row's sum of out * gradient.
            const Value delta =
                row_product(made_rows.data + r * made_rows.stride, given_rows.data + r * given_rows.stride, pass.e);
            const uint16_t* const draws = pass.draws.draw(pass.place(sample, head, row) * pass.m, seen, mine.draws);
            row_gradients(scores, slopes, seen, natural_weights(log_sum, draws, pass.draws.threshold(), keep), delta);
            additive_gradients(q_row, w_row, pass.d, k_of, pass.m, seen, slopes, q_sums.data + r * q_sums.stride,
                               to_w + z * pass.d, k_sums);
          }
          pass.count(first, columns, 4);
          v_sums.add(0, columns, rows, mine.weights.data(), columns, slope_rows, false);
        }
        store_rows(q_sums, rows, pass.d, to_q.at(sample, head, first), to_q.stride);
      }
      v_sums.finish();
      store(k_sums, table, to_k + z * table);
      store_rows(v_rows, pass.m, pass.e, to_v.at(sample, head), to_v.stride);
    });
  });
  return {dq, dk.transpose(2, 3), dv, dw.sum(0)};
}

}  // namespace xformer::kernels
