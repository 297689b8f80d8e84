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
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"
#include "kernels/cpu/valid_rows.h"
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

template <class Stored>
SetRows<Stored> rows_of(const Heads<const Stored>& x, const OneSet& one, const ValidRows& valid) {
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
  // `value` for the tokens of a set that do not count.
  template <class Value>
  void close(const OneSet& one, Value value, Value* line_of) const {
    const int64_t count = read(one);
    std::fill(line_of + count, line_of + sets.size, value);
    if (valid.all(one.b, one.first, one.first + count)) return;
    for (int64_t i = 0; i < count; ++i)
      if (!valid.at(one.b, one.first + i)) line_of[i] = value;
  }
  // Scores of the set's tokens, -infinity of those that do not count.
  template <class Value, class Stored>
  void score(const OneSet& one, const Value* q, const Stored* k, int64_t stride, Value* scores) const {
    products_with(k, stride, read(one), q, d, static_cast<Value>(scale), scores);
    close(one, -std::numeric_limits<Value>::infinity(), scores);
  }

  int64_t d, e;
  TokenSets sets;
  int64_t t;
  ValidRows valid;
  ElementDraws draws;
  double scale;
  std::vector<int64_t> ends;  // of each sample: one behind its last valid token
};

template <class Stored>
struct SetScratch {
  using Value = Computed<Stored>;
  std::vector<Value> scores, slopes;
  std::vector<Value> query, gradient, out;  // where they are widened, or computed before they are stored
  std::vector<uint16_t> draws;
};

// What is widened of a set whose largest row is sought.
constexpr int64_t kWidenedRows = 64;

template <class Value>
struct LargestScratch {
  std::vector<Value> rows, largest, left, out;
};

template <class Stored>
void find_largest(const SetRows<Stored>& of, int64_t width, Stored* out, LargestScratch<Computed<Stored>>& mine) {
  if constexpr (!kConverts<Stored>) {
    largest_of_set(of, width, out);
  } else {
    // Rows that count, behind the largest of those before.
    auto* const rows = grown(mine.rows, (kWidenedRows + 1) * width);
    auto* const largest = grown(mine.largest, width);
    int64_t held = 0;
    for (int64_t i = 0; i < of.count; ++i) {
      if (of.valid != nullptr && !of.valid[i]) continue;
      if (held > kWidenedRows) {
        largest_of_set(SetRows<Computed<Stored>>{rows, width, held, nullptr}, width, largest);
        std::copy_n(largest, width, rows);
        held = 1;
      }
      widen(1, width, of.rows + i * of.stride, width, rows + held++ * width, width);
    }
    largest_of_set(SetRows<Computed<Stored>>{rows, width, held, nullptr}, width, largest);
    put(largest, width, out);
  }
}

// slopes_of_set(), some rows at a time where they are to be widened.
template <class Stored>
void find_slopes(const SetRows<Stored>& of, int64_t width, const Stored* largest_in, const Stored* slope, Stored* out,
                 int64_t out_stride, LargestScratch<Computed<Stored>>& mine) {
  using Value = Computed<Stored>;
  const Value* const largest = loaded(largest_in, width, mine.largest);
  Value* const left = grown(mine.left, width);
  take(slope, width, left);
  const int64_t step = kConverts<Stored> ? kWidenedRows : std::max<int64_t>(of.count, 1);
  for (int64_t i = 0; i < of.count; i += step) {
    const int64_t count = std::min(step, of.count - i);
    const TileRows<const Value> rows = loaded_rows(of.rows + i * of.stride, of.stride, count, width, mine.rows);
    const TileRows<Value> to = rows_for(out + i * out_stride, out_stride, count, width, mine.out);
    slopes_of_set(SetRows<Value>{rows.data, rows.stride, count, of.valid == nullptr ? nullptr : of.valid + i}, width,
                  largest, left, to.data, to.stride);
    store_rows(to, count, width, out + i * out_stride, out_stride);
  }
}

}  // namespace

at::Tensor set_max_forward_cpu(const at::Tensor& given, const TokenSets& sets) {
  const at::Tensor x = with_channels(given);
  const int64_t d = x.size(3), units = x.size(0) * x.size(1) * sets.count(x.size(2));
  const ValidRows valid(sets.valid, x.size(2));
  const at::Tensor result = at::empty({x.size(0), x.size(1), sets.count(x.size(2)), d}, x.options());
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "set_max", [&] {
    std::vector<LargestScratch<Computed<scalar_t>>> scratch(static_cast<size_t>(workers_for(units)));
    const auto rows = reading<scalar_t>(x);
    const auto out = writing<scalar_t>(result);
    for_sets(x, sets, d, [&](const OneSet& one, int64_t worker) {
      find_largest(rows_of(rows, one, valid), d, out.at(one.b, one.h, one.set), scratch[static_cast<size_t>(worker)]);
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
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "set_max_backward", [&] {
    std::vector<LargestScratch<Computed<scalar_t>>> scratch(static_cast<size_t>(workers_for(units)));
    const auto rows = reading<scalar_t>(x), largest = reading<scalar_t>(out), given = reading<scalar_t>(gradient);
    const auto to = writing<scalar_t>(result);
    for_sets(x, sets, d, [&](const OneSet& one, int64_t worker) {
      find_slopes(rows_of(rows, one, valid), d, largest.at(one.b, one.h, one.set), given.at(one.b, one.h, one.set),
                  to.at(one.b, one.h, one.first), to.stride, scratch[static_cast<size_t>(worker)]);
    });
  });
  return result;
}

SetAttentionForward set_attention_forward_cpu(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
                                              const SetAttentionOptions& options) {
  const at::Tensor q = with_channels(q_in), k = with_channels(k_in), v = with_channels(v_in);
  const SetPass pass(q, k, v, options);
  SetAttentionForward result{at::empty({q.size(0), q.size(1), pass.t, pass.e}, q.options()),
                             at::empty({q.size(0), q.size(1), pass.t}, computed_options(q))};
  const int64_t units = q.size(0) * q.size(1) * pass.t;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "set_attention", [&] {
    using Value = Computed<scalar_t>;
    std::vector<SetScratch<scalar_t>> scratch(static_cast<size_t>(workers_for(units)));
    const auto queries = reading<scalar_t>(q), keys = reading<scalar_t>(k), values = reading<scalar_t>(v);
    const auto out = writing<scalar_t>(result.out);
    auto* const log_sums = result.log_sum.mutable_data_ptr<Value>();
    for_sets(k, pass.sets, pass.d + pass.e, [&](const OneSet& one, int64_t worker) {
      SetScratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
      Value* const scores = grown(mine.scores, pass.sets.size);
      const Value* const query = loaded(queries.at(one.b, one.h, one.set), pass.d, mine.query);
      pass.score(one, query, keys.at(one.b, one.h, one.first), keys.stride, scores);
      const int64_t place = pass.place(q, one), count = pass.read(one);
      const uint16_t* const draws = pass.draws.draw(place * pass.sets.size, pass.sets.size, mine.draws);
      constexpr Value kNone = -std::numeric_limits<Value>::infinity();
      const Value most = row_largest(scores, pass.sets.size, kNone), shift = most == kNone ? Value(0) : most;
      const Value weights = row_weights(
          scores, pass.sets.size,
          natural_weights(shift, draws, pass.draws.threshold(), static_cast<Value>(pass.draws.keep())), scores);
      const bool none = weights == 0;
      log_sums[place] = none ? std::numeric_limits<Value>::infinity() : shift + std::log(weights);
      scalar_t* const to = out.at(one.b, one.h, one.set);
      Value* const sum = place_for(to, pass.e, mine.out);
      weighted_sum(values.at(one.b, one.h, one.first), values.stride, count, scores, pass.e,
                   none ? Value(0) : 1 / weights, sum);
      store(sum, pass.e, to);
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
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "set_attention_backward", [&] {
    using Value = Computed<scalar_t>;
    std::vector<SetScratch<scalar_t>> scratch(static_cast<size_t>(workers_for(units)));
    const auto queries = reading<scalar_t>(q), keys = reading<scalar_t>(k), values = reading<scalar_t>(v),
               given = reading<scalar_t>(gradient), out = reading<scalar_t>(forward.out);
    const auto dq = writing<scalar_t>(result.q), dk = writing<scalar_t>(result.k), dv = writing<scalar_t>(result.v);
    const auto* const log_sums = forward.log_sum.const_data_ptr<Value>();
    const auto scale = static_cast<Value>(pass.scale), keep = static_cast<Value>(pass.draws.keep());
    for_sets(k, pass.sets, 3 * (pass.d + pass.e), [&](const OneSet& one, int64_t worker) {
      SetScratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
      Value *const scores = grown(mine.scores, pass.sets.size), *const slopes = grown(mine.slopes, pass.sets.size);
      const int64_t place = pass.place(q, one), count = pass.read(one);
      const scalar_t* const key = keys.at(one.b, one.h, one.first);
      const Value *const query = loaded(queries.at(one.b, one.h, one.set), pass.d, mine.query),
                         *const slope = loaded(given.at(one.b, one.h, one.set), pass.e, mine.gradient);
      pass.score(one, query, key, keys.stride, scores);
      products_with(values.at(one.b, one.h, one.first), values.stride, count, slope, pass.e, Value(1), slopes);
      pass.close(one, Value(0), slopes);
      // What softmax's gradient takes off: the row's sum of out * gradient.
      const Value delta = row_product(loaded(out.at(one.b, one.h, one.set), pass.e, mine.out), slope, pass.e);
      const uint16_t* const draws = pass.draws.draw(place * pass.sets.size, pass.sets.size, mine.draws);
      row_gradients(scores, slopes, pass.sets.size,
                    natural_weights(log_sums[place], draws, pass.draws.threshold(), keep), delta);
      scalar_t* const to = dq.at(one.b, one.h, one.set);
      Value* const sum = place_for(to, pass.d, mine.out);
      weighted_sum(key, keys.stride, count, slopes, pass.d, scale, sum);
      store(sum, pass.d, to);
      spread(query, pass.d, slopes, one.count, scale, dk.at(one.b, one.h, one.first), dk.stride);
      spread(slope, pass.e, scores, one.count, Value(1), dv.at(one.b, one.h, one.first), dv.stride);
      add_executed_flops(4 * count * (pass.d + pass.e));
    });
  });
  return result;
}

}  // namespace xformer::kernels
