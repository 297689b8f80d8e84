// Hashed attention on the CPU, a head of a sample at a time: its tokens are laid out in the order of their buckets, so
// that a chunk's queries and keys are neighbours and its logits one small product.
#include "kernels/hashed_attention/cpu.h"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention/cpu.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/lanes_512.h"
#include "kernels/cpu/tile_sums.h"
#include "kernels/cpu/units.h"
#include "kernels/hashed_attention/pass.h"
#include "kernels/hashed_attention/token_rows.h"

namespace xformer::kernels {

namespace {

// Rows that are converted, changed and stored together.
constexpr int64_t kRowsAtOnce = 64;

// rows [count, width] = those of the tokens; zero where there is none.
template <class Value>
void gather(const Value* from, int64_t stride, int64_t width, const int32_t* tokens, int64_t count,
            std::vector<Value>& rows) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Value));
  gather_rows(from, stride * kBytes, width * kBytes, tokens, count, grown(rows, count * width));
}

template <class Stored>
void measure(const HashedPass& pass, const Heads<const Stored>& q, int64_t unit, Scratch<Stored>& mine) {
  using Value = Computed<Stored>;
  mine.length.resize(static_cast<size_t>(pass.n));
  const auto floor = static_cast<Value>(kKeyEpsilon * static_cast<double>(pass.d));
  const Stored* const rows = q.at(unit / pass.h, unit % pass.h);
  row_products(pass.n, pass.d, rows, q.stride, rows, q.stride, mine.length.data());
  for (Value& length : mine.length) length = 1 / std::sqrt(length + floor);
}

// Queries, keys and values of a round in its slots.
template <class Stored>
void sort_rows(const HashedPass& pass, const Heads<const Stored>& q, const Heads<const Stored>& v, int64_t unit,
               int64_t round, Scratch<Stored>& mine) {
  using Value = Computed<Stored>;
  Sorted<Stored>& sorted = mine.sorted;
  pass.place(unit, round, sorted.tokens);
  const int64_t count = pass.before + pass.slots, d = pass.d;
  const int32_t* const tokens = sorted.tokens.data();
  const Stored* const queries = q.at(unit / pass.h, unit % pass.h);
  gather(v.at(unit / pass.h, unit % pass.h), v.stride, pass.e, tokens, count, sorted.v);
  grown(sorted.k, count * d);
  if constexpr (kConverts<Stored>)
    if (has_bf16_512())
      return by_512::gather_scaled(queries, q.stride, d, tokens, count, mine.length.data(), grown(sorted.q, count * d),
                                   sorted.k.data());
  gather(queries, q.stride, d, tokens, count, sorted.q);
  for (int64_t first = 0; first < count; first += kRowsAtOnce) {
    const int64_t rows = std::min(kRowsAtOnce, count - first);
    Stored* const to = sorted.k.data() + first * d;
    Value* const keys = place_for(to, rows * d, mine.second_room);
    scale_rows(loaded(sorted.q.data() + first * d, rows * d, mine.first_room), d, tokens + first, rows,
               mine.length.data(), keys);
    store(keys, rows * d, to);
  }
}

template <class Stored>
void score(const HashedPass& pass, int64_t chunk, const HashedPass::Window& window, Scratch<Stored>& mine) {
  using Value = Computed<Stored>;
  mine.scores.resize(static_cast<size_t>(pass.c * pass.line));
  const int64_t key = chunk * pass.c + window.first, query = chunk * pass.c + pass.before;
  gemm(pass.c, window.columns, pass.d, Value(1), {mine.sorted.q.data() + query * pass.d, pass.d},
       {mine.sorted.k.data() + key * pass.d, pass.d, true}, Value(0), mine.scores.data(), pass.line);
  pass.mask(mine.sorted.tokens, chunk, window, mine.scores.data());
}

// One round into the running sums of every token: out = sum of exp(logit - shift) v, undivided.
template <class Stored>
void add_round(const HashedPass& pass, int64_t unit, int64_t round, Scratch<Stored>& mine) {
  using Value = Computed<Stored>;
  const auto keep = static_cast<Value>(pass.draws.keep());
  const int64_t e = pass.e;
  mine.rows.resize(static_cast<size_t>(pass.c * e));
  for (int64_t chunk = 0; chunk < pass.slots / pass.c; ++chunk) {
    const HashedPass::Window window = pass.window(mine.sorted.tokens, chunk);
    if (window.columns == 0) continue;
    score(pass, chunk, window, mine);
    const int32_t* const queries = mine.sorted.tokens.data() + chunk * pass.c + pass.before;
    const uint16_t* const drawn = pass.draw(unit, round, chunk, mine.draws);
    mine.steps.resize(static_cast<size_t>(2 * pass.c));
    Stored* const weights = place_of_factor<Stored>(mine.scores.data(), pass.c * pass.line, mine.factor);
    const int32_t* const keys = mine.sorted.tokens.data() + chunk * pass.c + window.first;
    for (int64_t r = 0; r < pass.c; ++r) {
      if (queries[r] < 0) continue;
      const uint16_t* const of_row = drawn == nullptr ? nullptr : drawn + r * (pass.before + pass.c) + window.first;
      Value* const row = mine.scores.data() + r * pass.line;
      const Value largest = row_largest(row, pass.line, -std::numeric_limits<Value>::infinity());
      const Value shift = pass.shift_of(largest, queries, keys, chunk, window, r, row);
      mine.steps[static_cast<size_t>(2 * r)] = largest;
      mine.steps[static_cast<size_t>(2 * r + 1)] = row_weights(
          row, pass.line, natural_weights(shift, of_row, pass.draws.threshold(), keep), weights + r * pass.line);
    }
    gemm(pass.c, e, window.columns, Value(1), {weights, pass.line},
         {mine.sorted.v.data() + (chunk * pass.c + window.first) * e, e}, Value(0), mine.rows.data(), e);
    for (int64_t r = 0; r < pass.c; ++r) {
      if (queries[r] < 0) continue;
      const auto token = static_cast<size_t>(queries[r]);
      const Value shift = mine.steps[static_cast<size_t>(2 * r)], sum = mine.steps[static_cast<size_t>(2 * r + 1)];
      const Value* const row = mine.rows.data() + r * e;
      Value* const into = mine.out.data() + queries[r] * e;
      if (mine.sum[token] == 0) {
        mine.shift[token] = shift, mine.sum[token] = sum;
        std::copy_n(row, e, into);
        continue;
      }
      const Value highest = std::max(shift, mine.shift[token]);
      const Value old = std::exp(mine.shift[token] - highest), now = std::exp(shift - highest);
      mine.shift[token] = highest, mine.sum[token] = mine.sum[token] * old + sum * now;
      mix_row(into, row, e, old, now);
    }
  }
}

// Rows of slots from `first` on, as rows(first, count) gives them, to those of their tokens: added, or put there.
template <class Value, class Rows>
void to_tokens(const std::vector<int32_t>& tokens, int64_t first, int64_t end, int64_t width, bool adds,
               const Rows& rows, Value* into) {
  for (; first < end; first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, end - first);
    if (adds) add_rows_at(rows(first, count), width, tokens.data() + first, count, into);
    else put_rows_at(rows(first, count), width, tokens.data() + first, count, into);
  }
}

// The gradients of one round, added to those of every token; the first round's begin them, for every token has one slot
// of its own in a round.
template <class Stored, class Value>
void add_round_gradients(const HashedPass& pass, int64_t unit, int64_t round, const std::vector<Value>& delta,
                         Scratch<Stored>& mine) {
  const auto keep = static_cast<Value>(pass.draws.keep());
  const int64_t c = pass.c, d = pass.d, e = pass.e, line = pass.line, count = pass.before + pass.slots;
  Sorted<Stored>& sorted = mine.sorted;
  grown(sorted.q_gradient, count * d);  // every chunk's queries are written once, its keys are added to
  const TileSums<Stored> k_sums({grown(sorted.k_gradient, count * d), d}, count, d, Value(1), mine.turned_k),
      v_sums({grown(sorted.v_gradient, count * e), e}, count, e, Value(1), mine.turned_v);
  k_sums.clear();
  v_sums.clear();
  const bool paired = v_sums.takes_pairs(e) && k_sums.takes_pairs(d);
  mine.steps.resize(static_cast<size_t>(c * line));
  for (int64_t chunk = 0; chunk < pass.slots / c; ++chunk) {
    const HashedPass::Window window = pass.window(sorted.tokens, chunk);
    const int64_t key = chunk * c + window.first, query = chunk * c + pass.before;
    if (window.columns == 0) {
      std::fill_n(sorted.q_gradient.data() + query * d, c * d, Value(0));
      continue;
    }
    const int32_t *const queries = sorted.tokens.data() + query, *const keys = sorted.tokens.data() + key;
    score(pass, chunk, window, mine);
    Value *const weights = mine.scores.data(), *const steps = mine.steps.data();
    const Stored* const slope = sorted.slope.data() + query * e;
    gemm(c, window.columns, e, Value(1), {slope, e}, {sorted.v.data() + key * e, e, true}, Value(0), steps, line);
    const uint16_t* const drawn = pass.draw(unit, round, chunk, mine.draws);
    const auto row_at = [&](int64_t r) {
      GradientRow<Value> row{weights + r * line, steps + r * line, {}, 0, queries[r] >= 0};
      if (!row.counts) return row;
      const auto token = static_cast<size_t>(queries[r]);
      const Value shift = pass.shift_of(mine.shift[token], queries, keys, chunk, window, r, row.scores);
      const uint16_t* const of_row = drawn == nullptr ? nullptr : drawn + r * (pass.before + c) + window.first;
      row.weights = natural_weights(shift + mine.log_sum[token], of_row, pass.draws.threshold(), keep);
      row.delta = delta[token];
      return row;
    };
    const auto for_self = [&](const auto& work) {
      for (int64_t r = 0; r < c; ++r) pass.for_self(queries, keys, chunk, window, r, [&](int64_t j) { work(r, j); });
    };
    const Operand<Stored> of_queries{sorted.q.data() + query * d, d};
    Operand<Stored> factor{nullptr, 0};
    if constexpr (kConverts<Stored>)
      if (paired) {
        factor = {weigh_pairs(c, window.columns, window.columns, 1, row_at, mine.paired), window.columns};
        for_self([&](int64_t r, int64_t j) {
          mine.paired.slopes.clear(r, j);
          mine.paired.rows[static_cast<size_t>(r * window.columns + j)] = Stored(0);
        });
        v_sums.add(key, mine.paired.weights, {slope, e}, /*replaces=*/false);
        k_sums.add(key, mine.paired.slopes, of_queries, /*replaces=*/false);
      }
    if (!paired) {
      for (int64_t r = 0; r < c; ++r) weigh(row_at(r), window.columns, Value(1));
      for_self([&](int64_t r, int64_t j) { steps[r * line + j] = Value(0); });
      v_sums.add(key, window.columns, c, weights, line, {slope, e}, /*replaces=*/false);
      k_sums.add(key, window.columns, c, steps, line, of_queries, /*replaces=*/false);
      factor = {factor_of<Stored>(steps, c * line, mine.factor), line};
    }
    gemm(c, d, window.columns, Value(1), factor, {sorted.k.data() + key * d, d}, Value(0),
         sorted.q_gradient.data() + query * d, d);
  }
  const auto q_rows = [&](int64_t first, int64_t) { return sorted.q_gradient.data() + first * d; };
  const auto k_rows = [&](int64_t first, int64_t rows) { return k_sums.rows(first, rows, mine.first_room); };
  const auto v_rows = [&](int64_t first, int64_t rows) { return v_sums.rows(first, rows, mine.first_room); };
  to_tokens(sorted.tokens, pass.before, count, d, round > 0, q_rows, mine.q_gradient.data());
  const auto keys_to_tokens = [&](int64_t width, const auto& rows, Value* into) {
    if (round > 0) return to_tokens(sorted.tokens, 0, count, width, true, rows, into);
    to_tokens(sorted.tokens, pass.before, count, width, false, rows, into);
    to_tokens(sorted.tokens, 0, pass.before, width, true, rows, into);
  };
  keys_to_tokens(d, k_rows, mine.k_gradient.data());
  keys_to_tokens(e, v_rows, mine.v_gradient.data());
}

// From the gradients of a head's queries, keys and values to those of q and v.
template <class Stored>
void store_gradients(const HashedPass& pass, int64_t unit, const Heads<const Stored>& q, const Heads<Stored>& q_out,
                     const Heads<Stored>& v_out, Scratch<Stored>& mine) {
  using Value = Computed<Stored>;
  const int64_t sample = unit / pass.h, head = unit % pass.h, n = pass.n, d = pass.d, e = pass.e;
  if (pass.valid.defined())  // no round had a slot for those that are not
    for (int64_t i = 0; i < n; ++i)
      if (!pass.valid.at(sample, i)) std::fill_n(mine.v_gradient.data() + i * e, e, Value(0));
  if constexpr (kConverts<Stored>)
    if (has_bf16_512()) {
      narrow(n, e, mine.v_gradient.data(), e, v_out.at(sample, head), v_out.stride);
      return by_512::store_gradients(
          {n, d, q.at(sample, head), q.stride, mine.length.data(), mine.q_gradient.data(), mine.k_gradient.data(),
           pass.valid.defined() ? pass.valid.flags(sample) : nullptr},
          q_out.at(sample, head), q_out.stride);
    }
  for (int64_t i = 0; i < n; ++i) {
    put(mine.v_gradient.data() + i * e, e, v_out.at(sample, head, i));
    Stored* const to = q_out.at(sample, head, i);
    if (!pass.valid.at(sample, i)) {  // whatever lies there, also NaN
      std::fill_n(to, d, Stored(0));
      continue;
    }
    // k = q / |q|: its gradient without the part along k, divided by |q|.
    const Value* const k_gradient = mine.k_gradient.data() + i * d;
    const Value* const query = loaded(q.at(sample, head, i), d, mine.first_room);
    const Value factor = mine.length[static_cast<size_t>(i)];
    const Value along = row_product(query, k_gradient, d) * factor * factor;
    Value* const row = place_for(to, d, mine.second_room);
    for (int64_t j = 0; j < d; ++j)
      row[j] = mine.q_gradient[static_cast<size_t>(i * d + j)] + factor * (k_gradient[j] - query[j] * along);
    store(row, d, to);
  }
}

}  // namespace

HashedAttentionForward hashed_attention_forward_cpu(const at::Tensor& q, const at::Tensor& v, const at::Tensor& buckets,
                                                    const HashedAttentionOptions& options) {
  HashedAttentionForward result{new_heads(q, q.size(2), v.size(3)), {}, {}, {}};
  if (buckets.defined()) result.order = sorted_tokens(buckets);
  const HashedPass pass(DrawnBy::kForward, q, v, result.order, options);
  result.shift = at::empty({pass.b, pass.h, pass.n}, computed_options(q));
  result.sum = at::empty_like(result.shift);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "hashed_attention", [&] {
    using Value = Computed<scalar_t>;
    std::vector<Scratch<scalar_t>> scratch(static_cast<size_t>(workers_for(pass.b * pass.h)));
    const auto queries = reading<scalar_t>(pass.q), values = reading<scalar_t>(pass.v);
    const auto out = writing<scalar_t>(result.out);
    for_units(pass.b * pass.h, pass.rounds * pass.slots * pass.line * pass.d, [&](int64_t unit, int64_t worker) {
      Scratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
      mine.shift.assign(static_cast<size_t>(pass.n), Value(0));
      mine.sum.assign(static_cast<size_t>(pass.n), Value(0));
      mine.out.assign(static_cast<size_t>(pass.n * pass.e), Value(0));
      measure(pass, queries, unit, mine);
      for (int64_t round = 0; round < pass.rounds; ++round) {
        sort_rows(pass, queries, values, unit, round, mine);
        add_round(pass, unit, round, mine);
      }
      // Sums of all rounds over the sums of their weights.
      quotient_rows(pass.n, pass.e, mine.out.data(), pass.e, mine.sum.data(), nullptr,
                    out.at(unit / pass.h, unit % pass.h), out.stride);
      std::copy(mine.shift.begin(), mine.shift.end(), result.shift.mutable_data_ptr<Value>() + unit * pass.n);
      std::copy(mine.sum.begin(), mine.sum.end(), result.sum.mutable_data_ptr<Value>() + unit * pass.n);
    });
  });
  return result;
}

HashedAttentionGradients hashed_attention_backward_cpu(const at::Tensor& gradient_in, const at::Tensor& q,
                                                       const at::Tensor& v, const HashedAttentionForward& forward,
                                                       const HashedAttentionOptions& options) {
  const HashedPass pass(DrawnBy::kBackward, q, v, forward.order, options);
  const at::Tensor gradient = with_rows(gradient_in);
  HashedAttentionGradients result{new_heads(q, pass.n, pass.d), new_heads(q, pass.n, pass.e)};
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "hashed_attention_backward", [&] {
    using Value = Computed<scalar_t>;
    const auto workers = static_cast<size_t>(workers_for(pass.b * pass.h));
    std::vector<Scratch<scalar_t>> scratch(workers);
    std::vector<std::vector<Value>> deltas(workers, std::vector<Value>(static_cast<size_t>(pass.n)));
    const auto queries = reading<scalar_t>(pass.q), values = reading<scalar_t>(pass.v);
    const auto outs = reading<scalar_t>(forward.out), slopes = reading<scalar_t>(gradient);
    const auto q_out = writing<scalar_t>(result.q), v_out = writing<scalar_t>(result.v);
    for_units(pass.b * pass.h, pass.rounds * pass.slots * pass.line * pass.d, [&](int64_t unit, int64_t worker) {
      Scratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
      std::vector<Value>& delta = deltas[static_cast<size_t>(worker)];
      const int64_t sample = unit / pass.h, head = unit % pass.h, n = pass.n, d = pass.d, e = pass.e;
      const auto rows_of = [&](const at::Tensor& x) { return x.const_data_ptr<Value>() + unit * n; };
      mine.shift.assign(rows_of(forward.shift), rows_of(forward.shift) + n);
      mine.log_sum.resize(static_cast<size_t>(n));
      std::transform(rows_of(forward.sum), rows_of(forward.sum) + n, mine.log_sum.begin(),
                     [](Value sum) { return std::log(sum); });
      grown(mine.q_gradient, n * d), grown(mine.k_gradient, n * d), grown(mine.v_gradient, n * e);
      measure(pass, queries, unit, mine);
      row_products(n, e, outs.at(sample, head), outs.stride, slopes.at(sample, head), slopes.stride, delta.data());
      for (int64_t round = 0; round < pass.rounds; ++round) {
        sort_rows(pass, queries, values, unit, round, mine);
        gather(slopes.at(sample, head), slopes.stride, e, mine.sorted.tokens.data(), pass.before + pass.slots,
               mine.sorted.slope);
        add_round_gradients(pass, unit, round, delta, mine);
      }
      store_gradients(pass, unit, queries, q_out, v_out, mine);
    });
  });
  return result;
}

}  // namespace xformer::kernels
