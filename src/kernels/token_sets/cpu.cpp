// Sets of tokens on the CPU: a set's rows go by once in each pass, read where they lie.
#include "kernels/token_sets/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention/cpu.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/units.h"
#include "kernels/cpu/valid_rows.h"
#include "kernels/window_attention/window_rows.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

// Rows of which the channels are neighbours.
at::Tensor with_channels(const at::Tensor& x) { return x.size(3) == 1 || x.stride(3) == 1 ? x : x.contiguous(); }

// One set: that of its head, and its tokens.
struct OneSet {
  int64_t b, h, set, first, count;
};

// work(set, worker), a set per unit. `size`: of a token, in elements.
template <class Work>
void for_sets(const at::Tensor& x, const TokenSets& sets, int64_t size, const Work& work) {
  const int64_t h = x.size(1), n = x.size(2), t = sets.count(n);
  for_units(x.size(0) * h * t, sets.size * size, [&](int64_t unit, int64_t worker) {
    const int64_t set = unit % t, first = set * sets.size;
    work(OneSet{unit / t / h, unit / t % h, set, first, std::min(sets.size, n - first)}, worker);
  });
}

template <class Value>
SetRows<Value> rows_of(const Heads<const Value>& x, const OneSet& one, const ValidRows& valid) {
  return {x.at(one.b, one.h, one.first), x.stride, one.count,
          valid.all(one.b, one.first, one.first + one.count) ? nullptr : valid.flags(one.b) + one.first};
}

// What both passes of a set's attention share.
struct SetPass {
  SetPass(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SetAttentionOptions& options)
      : d(k.size(3)),
        e(v.size(3)),
        sets(options.sets),
        t(q.size(2)),
        line((sets.size + kRowStep - 1) / kRowStep * kRowStep),
        valid(sets.valid, k.size(2)),
        draws(options.dropout, at::empty({1}, at::kByte).expand({q.size(0), q.size(1), t, 1, sets.size})),
        scale(1 / std::sqrt(static_cast<double>(d))) {
    for (int64_t b = 0; b < k.size(0); ++b) ends.push_back(valid.end(b));
  }

  // Tokens of a set up to the sample's last valid one.
  [[nodiscard]] int64_t read(const OneSet& one) const {
    return std::clamp<int64_t>(ends[static_cast<size_t>(one.b)] - one.first, 0, one.count);
  }
  [[nodiscard]] int64_t place(const at::Tensor& q, const OneSet& one) const {
    return (one.b * q.size(1) + one.h) * t + one.set;
  }
  // `value` for the tokens of a set that do not count, and behind them.
  template <class Value>
  void close(const OneSet& one, Value value, Value* line_of) const {
    const int64_t count = read(one);
    std::fill(line_of + count, line_of + line, value);
    if (valid.all(one.b, one.first, one.first + count)) return;
    for (int64_t i = 0; i < count; ++i)
      if (!valid.at(one.b, one.first + i)) line_of[i] = value;
  }
  // Scores of the set's tokens, -infinity of those that do not count.
  template <class Value>
  void score(const OneSet& one, const Value* q, const Value* k, int64_t stride, Value* scores) const {
    products_with(k, stride, read(one), q, d, static_cast<Value>(scale), scores);
    close(one, -std::numeric_limits<Value>::infinity(), scores);
  }

  int64_t d, e;
  TokenSets sets;
  int64_t t, line;
  ValidRows valid;
  ElementDraws draws;
  double scale;
  std::vector<int64_t> ends;  // of each sample: one behind its last valid token
};

template <class Value>
struct SetScratch {
  std::vector<Value> scores, slopes;
  std::vector<uint16_t> draws;
};

}  // namespace

at::Tensor set_max_forward_cpu(const at::Tensor& given, const TokenSets& sets) {
  const at::Tensor x = with_channels(given);
  const int64_t d = x.size(3);
  const ValidRows valid(sets.valid, x.size(2));
  const at::Tensor result = at::empty({x.size(0), x.size(1), sets.count(x.size(2)), d}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "set_max", [&] {
    const auto rows = reading<scalar_t>(x);
    const auto out = writing<scalar_t>(result);
    for_sets(x, sets, d, [&](const OneSet& one, int64_t) {
      largest_of_set(rows_of(rows, one, valid), d, out.at(one.b, one.h, one.set));
    });
  });
  return result;
}

at::Tensor set_max_backward_cpu(const at::Tensor& gradient_in, const at::Tensor& x_in, const at::Tensor& out_in,
                                const TokenSets& sets) {
  const at::Tensor x = with_channels(x_in), out = with_channels(out_in), gradient = with_channels(gradient_in);
  const int64_t d = x.size(3), units = x.size(0) * x.size(1) * out.size(2);
  const ValidRows valid(sets.valid, x.size(2));
  const at::Tensor result = new_heads(x, x.size(2), d);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "set_max_backward", [&] {
    std::vector<std::vector<scalar_t>> rooms(static_cast<size_t>(workers_for(units)));
    const auto rows = reading<scalar_t>(x), largest = reading<scalar_t>(out), given = reading<scalar_t>(gradient);
    const auto to = writing<scalar_t>(result);
    for_sets(x, sets, d, [&](const OneSet& one, int64_t worker) {
      const scalar_t* const slope = given.at(one.b, one.h, one.set);
      std::vector<scalar_t>& left = rooms[static_cast<size_t>(worker)];
      left.assign(slope, slope + d);
      slopes_of_set(rows_of(rows, one, valid), d, largest.at(one.b, one.h, one.set), left.data(),
                    to.at(one.b, one.h, one.first), to.stride);
    });
  });
  return result;
}

SetAttentionForward set_attention_forward_cpu(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
                                              const SetAttentionOptions& options) {
  const at::Tensor q = with_channels(q_in), k = with_channels(k_in), v = with_channels(v_in);
  const SetPass pass(q, k, v, options);
  SetAttentionForward result{at::empty({q.size(0), q.size(1), pass.t, pass.e}, q.options()),
                             at::empty({q.size(0), q.size(1), pass.t}, q.options())};
  const int64_t units = q.size(0) * q.size(1) * pass.t;
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "set_attention", [&] {
    std::vector<SetScratch<scalar_t>> scratch(static_cast<size_t>(workers_for(units)));
    const auto queries = reading<scalar_t>(q), keys = reading<scalar_t>(k), values = reading<scalar_t>(v);
    const auto out = writing<scalar_t>(result.out);
    auto* const log_sums = result.log_sum.mutable_data_ptr<scalar_t>();
    for_sets(k, pass.sets, pass.d + pass.e, [&](const OneSet& one, int64_t worker) {
      SetScratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
      mine.scores.resize(static_cast<size_t>(pass.line));
      scalar_t* const scores = mine.scores.data();
      pass.score(one, queries.at(one.b, one.h, one.set), keys.at(one.b, one.h, one.first), keys.stride, scores);
      const int64_t place = pass.place(q, one), count = pass.read(one);
      const uint16_t* const draws = pass.draws.draw(place * pass.sets.size, pass.line, mine.draws);
      const RowSum<scalar_t> row =
          weigh_row(scores, pass.line, draws, pass.draws.threshold(), static_cast<scalar_t>(pass.draws.keep()));
      const bool none = row.sum == 0;
      log_sums[place] = none ? std::numeric_limits<scalar_t>::infinity() : row.shift + std::log(row.sum);
      weighted_sum(values.at(one.b, one.h, one.first), values.stride, count, scores, pass.e,
                   none ? scalar_t(0) : 1 / row.sum, out.at(one.b, one.h, one.set));
      add_executed_flops(2 * count * (pass.d + pass.e));
    });
  });
  return result;
}

SetAttentionGradients set_attention_backward_cpu(const at::Tensor& gradient_in, const at::Tensor& q_in,
                                                 const at::Tensor& k_in, const at::Tensor& v_in,
                                                 const SetAttentionForward& forward,
                                                 const SetAttentionOptions& options) {
  const at::Tensor q = with_channels(q_in), k = with_channels(k_in), v = with_channels(v_in),
                   gradient = with_channels(gradient_in);
  const SetPass pass(q, k, v, options);
  const int64_t n = k.size(2), units = q.size(0) * q.size(1) * pass.t;
  SetAttentionGradients result{at::empty(q.sizes(), q.options()), new_heads(k, n, pass.d), new_heads(v, n, pass.e)};
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "set_attention_backward", [&] {
    std::vector<SetScratch<scalar_t>> scratch(static_cast<size_t>(workers_for(units)));
    const auto queries = reading<scalar_t>(q), keys = reading<scalar_t>(k), values = reading<scalar_t>(v),
               given = reading<scalar_t>(gradient), out = reading<scalar_t>(forward.out);
    const auto dq = writing<scalar_t>(result.q), dk = writing<scalar_t>(result.k), dv = writing<scalar_t>(result.v);
    const auto* const log_sums = forward.log_sum.const_data_ptr<scalar_t>();
    const auto scale = static_cast<scalar_t>(pass.scale), keep = static_cast<scalar_t>(pass.draws.keep());
    for_sets(k, pass.sets, 3 * (pass.d + pass.e), [&](const OneSet& one, int64_t worker) {
      SetScratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
      mine.scores.resize(static_cast<size_t>(pass.line));
      mine.slopes.resize(static_cast<size_t>(pass.line));
      scalar_t *const scores = mine.scores.data(), *const slopes = mine.slopes.data();
      const int64_t place = pass.place(q, one), count = pass.read(one);
      const scalar_t *const query = queries.at(one.b, one.h, one.set), *const key = keys.at(one.b, one.h, one.first),
                            *const slope = given.at(one.b, one.h, one.set);
      pass.score(one, query, key, keys.stride, scores);
      products_with(values.at(one.b, one.h, one.first), values.stride, count, slope, pass.e, scalar_t(1), slopes);
      pass.close(one, scalar_t(0), slopes);
      // What softmax's gradient takes off: the row's sum of out * gradient.
      const scalar_t delta = row_product(out.at(one.b, one.h, one.set), slope, pass.e);
      const uint16_t* const draws = pass.draws.draw(place * pass.sets.size, pass.line, mine.draws);
      row_gradients(scores, slopes, pass.line, natural_weights(log_sums[place], draws, pass.draws.threshold(), keep),
                    delta);
      weighted_sum(key, keys.stride, count, slopes, pass.d, scale, dq.at(one.b, one.h, one.set));
      spread(query, pass.d, slopes, one.count, scale, dk.at(one.b, one.h, one.first), dk.stride);
      spread(slope, pass.e, scores, one.count, scalar_t(1), dv.at(one.b, one.h, one.first), dv.stride);
      add_executed_flops(4 * count * (pass.d + pass.e));
    });
  });
  return result;
}

}  // namespace xformer::kernels
