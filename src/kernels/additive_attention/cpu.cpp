// Additive attention on the CPU: a tile of rows against all their keys, whose channels lie side by side so that the
// loops over keys vectorise.
#include "kernels/additive_attention/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <cmath>
#include <limits>

#include "kernels/attention/cpu.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/heads.h"
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
  [[nodiscard]] int64_t place(int64_t sample, int64_t head, int64_t row) const { return (sample * h + head) * n + row; }

  int64_t b, h, n, m, d, e, tiles;
  bool causal;
  ValidRows keys, queries;
  ElementDraws draws;
};

template <class Value>
struct AdditiveScratch {
  std::vector<Value> weights, slopes, channels;
  std::vector<uint16_t> draws;
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
  AdditiveAttentionForward result{new_heads(q, pass.n, pass.e), at::empty({pass.b, pass.h, pass.n}, q.options())};
  const int64_t units = pass.b * pass.h * pass.tiles;
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "additive_attention", [&] {
    std::vector<AdditiveScratch<scalar_t>> scratch(static_cast<size_t>(workers_for(units)));
    const auto queries = reading<scalar_t>(q), values = reading<scalar_t>(v);
    const auto* const keys = k.const_data_ptr<scalar_t>();
    const auto* const w_rows = w.const_data_ptr<scalar_t>();
    const auto out = writing<scalar_t>(result.out);
    auto* const log_sums = result.log_sum.mutable_data_ptr<scalar_t>();
    const auto keep = static_cast<scalar_t>(pass.draws.keep());
    constexpr scalar_t kInfinite = std::numeric_limits<scalar_t>::infinity();
    for_units(units, kAdditiveRows * pass.m * 8 * pass.d, [&](int64_t unit, int64_t worker) {
      auto& mine = scratch[static_cast<size_t>(worker)];
      const int64_t z = unit / pass.tiles, sample = z / pass.h, head = z % pass.h;
      const int64_t first = unit % pass.tiles * kAdditiveRows, rows = pass.rows(first);
      const int64_t columns = pass.columns(sample, first);
      mine.weights.assign(static_cast<size_t>(rows * columns), scalar_t(0));
      scalar_t sums[kAdditiveRows] = {};
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t row = first + r, seen = pass.columns_of_row(row, columns);
        scalar_t* const scores = mine.weights.data() + r * columns;
        scalar_t& log_sum = log_sums[pass.place(sample, head, row)];
        log_sum = kInfinite;
        if (!pass.queries.at(sample, row) || seen == 0) continue;
        additive_scores(queries.at(sample, head, row), w_rows + head * pass.d, pass.d, keys + z * pass.d * pass.m,
                        pass.m, seen, scores);
        pass.forbid(sample, seen, scores);
        const scalar_t largest = row_largest(scores, seen, -kInfinite);
        if (largest == -kInfinite) {
          std::fill_n(scores, seen, scalar_t(0));
          continue;
        }
        const uint16_t* const draws = pass.draws.draw(pass.place(sample, head, row) * pass.m, seen, mine.draws);
        sums[r] = row_weights(scores, seen, natural_weights(largest, draws, pass.draws.threshold(), keep), scores);
        log_sum = largest + std::log(sums[r]);
      }
      pass.count(first, columns, 1);
      scalar_t* const to = out.at(sample, head, first);
      if (columns > 0)
        gemm(rows, pass.e, columns, scalar_t(1), {mine.weights.data(), columns},
             {values.at(sample, head), values.stride}, scalar_t(0), to, out.stride);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < pass.e; ++c) {
          scalar_t& one = to[r * out.stride + c];
          one = sums[r] == 0 ? scalar_t(0) : one / sums[r];
        }
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
  const at::Tensor dq = new_heads(q, pass.n, pass.d).zero_(), dv = new_heads(q, pass.m, pass.e).zero_();
  const at::Tensor dk = at::zeros({pass.b, pass.h, pass.d, pass.m}, q.options());
  const at::Tensor dw = at::zeros({pass.b, pass.h, pass.d}, q.options());
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "additive_attention_backward", [&] {
    std::vector<AdditiveScratch<scalar_t>> scratch(static_cast<size_t>(workers_for(pass.b * pass.h)));
    const auto queries = reading<scalar_t>(q), values = reading<scalar_t>(v);
    const auto given = reading<scalar_t>(gradient), out = reading<scalar_t>(made);
    const auto to_q = writing<scalar_t>(dq), to_v = writing<scalar_t>(dv);
    const auto* const keys = k.const_data_ptr<scalar_t>();
    const auto* const w_rows = w.const_data_ptr<scalar_t>();
    auto* const to_k = dk.mutable_data_ptr<scalar_t>();
    auto* const to_w = dw.mutable_data_ptr<scalar_t>();
    const auto* const log_sums = forward.log_sum.const_data_ptr<scalar_t>();
    const auto keep = static_cast<scalar_t>(pass.draws.keep());
    // A head's keys gain from all of its rows: one thread adds them up, tile after tile.
    for_units(pass.b * pass.h, pass.n * pass.m * 16 * pass.d, [&](int64_t z, int64_t worker) {
      auto& mine = scratch[static_cast<size_t>(worker)];
      const int64_t sample = z / pass.h, head = z % pass.h;
      for (int64_t first = 0; first < pass.n; first += kAdditiveRows) {
        const int64_t rows = pass.rows(first), columns = pass.columns(sample, first);
        if (columns == 0) continue;
        mine.weights.assign(static_cast<size_t>(rows * columns), scalar_t(0));
        mine.slopes.resize(std::max(mine.slopes.size(), mine.weights.size()));
        const scalar_t* const slope_rows = given.at(sample, head, first);
        gemm(rows, columns, pass.e, scalar_t(1), {slope_rows, given.stride},
             {values.at(sample, head), values.stride, true}, scalar_t(0), mine.slopes.data(), columns);
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t row = first + r, seen = pass.columns_of_row(row, columns);
          const scalar_t log_sum = log_sums[pass.place(sample, head, row)];
          if (std::isinf(log_sum)) continue;
          scalar_t *const scores = mine.weights.data() + r * columns, *const slopes = mine.slopes.data() + r * columns;
          const scalar_t *const query = queries.at(sample, head, row), *const w_row = w_rows + head * pass.d;
          const scalar_t* const k_rows = keys + z * pass.d * pass.m;
          additive_scores(query, w_row, pass.d, k_rows, pass.m, seen, scores);
          pass.forbid(sample, seen, scores);
          // What softmax's gradient takes off: the row's sum of out * gradient.
          const scalar_t delta = row_product(out.at(sample, head, row), slope_rows + r * given.stride, pass.e);
          const uint16_t* const draws = pass.draws.draw(pass.place(sample, head, row) * pass.m, seen, mine.draws);
          row_gradients(scores, slopes, seen, natural_weights(log_sum, draws, pass.draws.threshold(), keep), delta);
          additive_gradients(query, w_row, pass.d, k_rows, pass.m, seen, slopes, to_q.at(sample, head, row),
                             to_w + z * pass.d, to_k + z * pass.d * pass.m);
        }
        pass.count(first, columns, 4);
        gemm(columns, pass.e, rows, scalar_t(1), {mine.weights.data(), columns, true}, {slope_rows, given.stride},
             scalar_t(1), to_v.at(sample, head), to_v.stride);
      }
    });
  });
  return {dq, dk.transpose(2, 3), dv, dw.sum(0)};
}

}  // namespace xformer::kernels
