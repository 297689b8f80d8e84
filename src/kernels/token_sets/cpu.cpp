// Sets of tokens on the CPU: rows are read where they lie, those of one set, or of all that lie in it, while they are
// near.
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

using Tensors = std::vector<at::Tensor>;

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

// What both passes of attention within sets of one size share.
struct SetPass {
  SetPass(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t size, const at::Tensor& flags,
          const DropoutPlace& dropout)
      : d(k.size(3)),
        e(v.size(3)),
        size(size),
        t(q.size(2)),
        valid(flags, k.size(2)),
        draws(dropout, at::empty({1}, at::kByte).expand({q.size(0), q.size(1), t, 1, size})),
        scale(1 / std::sqrt(static_cast<double>(d))) {
    for (int64_t b = 0; b < k.size(0); ++b) ends.push_back(valid.end(b));
  }

  // Tokens of a run of sets up to the sample's last valid one.
  [[nodiscard]] int64_t read(const OneSet& run) const {
    return std::clamp<int64_t>(ends[static_cast<size_t>(run.b)] - run.first, 0, run.count);
  }
  [[nodiscard]] int64_t place(const at::Tensor& q, const OneSet& run) const {
    return (run.b * q.size(1) + run.h) * t + run.set;
  }
  // `value` for the tokens of a run that do not count.
  template <class Value>
  void close(const OneSet& run, Value value, Value* line) const {
    const int64_t count = read(run);
    std::fill(line + count, line + SetRun{size, run.count}.line(), value);
    if (valid.all(run.b, run.first, run.first + count)) return;
    for (int64_t i = 0; i < count; ++i)
      if (!valid.at(run.b, run.first + i)) line[i] = value;
  }

  int64_t d, e, size, t;
  ValidRows valid;
  ElementDraws draws;
  double scale;
  std::vector<int64_t> ends;  // of each sample: one behind its last valid token
};

// Of each size.
std::vector<SetPass> passes_of(const Tensors& q, const at::Tensor& k, const at::Tensor& v,
                               const NestedSetsOptions& options) {
  std::vector<SetPass> result;
  for (size_t i = 0; i < q.size(); ++i)
    result.emplace_back(q[i], k, v, options.sizes[i], options.valid, options.place(i));
  return result;
}

// work(level, run) for all sets within one of the largest, size by size, small ones some at once: a run is the first of
// its sets with the tokens of all.
template <class Work>
void for_nested(const std::vector<SetPass>& passes, const OneSet& whole, const Work& work) {
  const int64_t end = whole.first + whole.count;
  for (size_t level = 0; level < passes.size(); ++level) {
    const int64_t size = passes[level].size, tokens = std::max<int64_t>(1, kRunTokens / size) * size;
    for (int64_t first = whole.first; first < end; first += tokens)
      work(level, OneSet{whole.b, whole.h, first / size, first, std::min(tokens, end - first)});
  }
}

template <class Stored>
struct SetScratch {
  using Value = Computed<Stored>;
  std::vector<Value> scores, slopes;
  std::vector<Value> query, gradient, out;  // where they are widened, or computed before they are stored
  Value shifts[kRunTokens], sums[kRunTokens], factors[kRunTokens];  // of each set
  std::vector<Value> dk, dv;                                        // of tokens, likewise
  std::vector<uint16_t> draws;
};

Tensors with_channels(const Tensors& all) {
  Tensors result;
  for (const at::Tensor& x : all) result.push_back(with_channels(x));
  return result;
}
template <class Stored>
std::vector<Heads<const Stored>> reading_all(const Tensors& all) {
  std::vector<Heads<const Stored>> result;
  for (const at::Tensor& x : all) result.push_back(reading<Stored>(x));
  return result;
}

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

NestedSetsForward nested_sets_forward_cpu(const Tensors& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
                                          const NestedSetsOptions& options) {
  const Tensors q = with_channels(q_in);
  const at::Tensor k = with_channels(k_in), v = with_channels(v_in);
  const std::vector<SetPass> passes = passes_of(q, k, v, options);
  NestedSetsForward result;
  for (const at::Tensor& one : q) {
    result.outs.push_back(at::empty({one.size(0), one.size(1), one.size(2), v.size(3)}, one.options()));
    result.log_sums.push_back(at::empty({one.size(0), one.size(1), one.size(2)}, computed_options(one)));
  }
  const TokenSets largest{options.sizes.back(), options.valid};
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, k.scalar_type(), "nested_sets", [&] {
    using Value = Computed<scalar_t>;
    std::vector<SetScratch<scalar_t>> scratch(
        static_cast<size_t>(workers_for(k.size(0) * k.size(1) * passes.back().t)));
    const auto queries = reading_all<scalar_t>(q);
    const auto keys = reading<scalar_t>(k), values = reading<scalar_t>(v);
    std::vector<Heads<scalar_t>> outs;
    for (const at::Tensor& out : result.outs) outs.push_back(writing<scalar_t>(out));
    const int64_t size = static_cast<int64_t>(passes.size()) * (k.size(3) + v.size(3));
    for_sets(k, largest, size, [&](const OneSet& whole, int64_t worker) {
      SetScratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
      for_nested(passes, whole, [&](size_t level, const OneSet& one) {
        const SetPass& pass = passes[level];
        const SetRun all{pass.size, one.count}, read{pass.size, pass.read(one)};
        const int64_t sets = all.sets(), place = pass.place(q[level], one);
        Value* const scores = grown(mine.scores, all.line());
        const auto query =
            loaded_rows(queries[level].at(one.b, one.h, one.set), queries[level].stride, sets, pass.d, mine.query);
        products_with(keys.at(one.b, one.h, one.first), keys.stride, read, query.data, query.stride, pass.d,
                      static_cast<Value>(pass.scale), scores);
        pass.close(one, -std::numeric_limits<Value>::infinity(), scores);
        const uint16_t* const draws = pass.draws.draw(place * pass.size, all.line(), mine.draws);
        weigh_sets(all, draws, pass.draws.threshold(), static_cast<Value>(pass.draws.keep()), scores, mine.shifts,
                   mine.sums);
        log_rows(mine.shifts, mine.sums, sets, std::numeric_limits<Value>::infinity(),
                 result.log_sums[level].mutable_data_ptr<Value>() + place);
        for (int64_t r = 0; r < sets; ++r) mine.factors[r] = mine.sums[r] == 0 ? Value(0) : 1 / mine.sums[r];
        scalar_t* const to = outs[level].at(one.b, one.h, one.set);
        const TileRows<Value> made = rows_for(to, outs[level].stride, sets, pass.e, mine.out);
        weighted_sums(values.at(one.b, one.h, one.first), values.stride, all, scores, pass.e, mine.factors, made.data,
                      made.stride);
        store_rows(made, sets, pass.e, to, outs[level].stride);
        add_executed_flops(2 * read.tokens * (pass.d + pass.e));
      });
    });
  });
  return result;
}

NestedSetsGradients nested_sets_backward_cpu(const Tensors& gradients_in, const Tensors& q_in, const at::Tensor& k_in,
                                             const at::Tensor& v_in, const NestedSetsForward& forward,
                                             const NestedSetsOptions& options) {
  const Tensors q = with_channels(q_in), gradients = with_channels(gradients_in);
  const at::Tensor k = with_channels(k_in), v = with_channels(v_in);
  const std::vector<SetPass> passes = passes_of(q, k, v, options);
  const int64_t n = k.size(2), d = k.size(3), e = v.size(3);
  NestedSetsGradients result{{}, new_heads(k, n, d), new_heads(v, n, e)};
  for (const at::Tensor& one : q) result.q.push_back(at::empty(one.sizes(), one.options()));
  const TokenSets largest{options.sizes.back(), options.valid};
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, k.scalar_type(), "nested_sets_backward", [&] {
    using Value = Computed<scalar_t>;
    std::vector<SetScratch<scalar_t>> scratch(
        static_cast<size_t>(workers_for(k.size(0) * k.size(1) * passes.back().t)));
    const auto queries = reading_all<scalar_t>(q), given = reading_all<scalar_t>(gradients),
               outs = reading_all<scalar_t>(forward.outs);
    const auto keys = reading<scalar_t>(k), values = reading<scalar_t>(v);
    std::vector<Heads<scalar_t>> dq;
    for (const at::Tensor& one : result.q) dq.push_back(writing<scalar_t>(one));
    const auto dk = writing<scalar_t>(result.k), dv = writing<scalar_t>(result.v);
    const int64_t size = 3 * static_cast<int64_t>(passes.size()) * (d + e);
    for_sets(k, largest, size, [&](const OneSet& whole, int64_t worker) {
      SetScratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
      scalar_t* const stored_dk = dk.at(whole.b, whole.h, whole.first);
      scalar_t* const stored_dv = dv.at(whole.b, whole.h, whole.first);
      const TileRows<Value> dk_rows = rows_for(stored_dk, dk.stride, whole.count, d, mine.dk),
                            dv_rows = rows_for(stored_dv, dv.stride, whole.count, e, mine.dv);
      for_nested(passes, whole, [&](size_t level, const OneSet& one) {
        const SetPass& pass = passes[level];
        const SetRun all{pass.size, one.count}, read{pass.size, pass.read(one)};
        const int64_t sets = all.sets(), place = pass.place(q[level], one);
        Value *const scores = grown(mine.scores, all.line()), *const steps = grown(mine.slopes, all.line());
        const scalar_t* const key = keys.at(one.b, one.h, one.first);
        const auto rows_of = [&](const Heads<const scalar_t>& x, int64_t width, std::vector<Value>& room) {
          return loaded_rows(x.at(one.b, one.h, one.set), x.stride, sets, width, room);
        };
        const auto query = rows_of(queries[level], d, mine.query), slope = rows_of(given[level], e, mine.gradient),
                   out = rows_of(outs[level], e, mine.out);
        const auto scale = static_cast<Value>(pass.scale);
        products_with(key, keys.stride, read, query.data, query.stride, d, scale, scores);
        pass.close(one, -std::numeric_limits<Value>::infinity(), scores);
        products_with(values.at(one.b, one.h, one.first), values.stride, read, slope.data, slope.stride, e, Value(1),
                      steps);
        pass.close(one, Value(0), steps);
        // What softmax's gradient takes off: a row's sum of out * gradient.
        row_products(sets, e, out.data, out.stride, slope.data, slope.stride, mine.sums);
        const uint16_t* const draws = pass.draws.draw(place * pass.size, all.line(), mine.draws);
        slope_sets(all, draws, pass.draws.threshold(), static_cast<Value>(pass.draws.keep()),
                   forward.log_sums[level].const_data_ptr<Value>() + place, mine.sums, scores, steps);
        scalar_t* const to = dq[level].at(one.b, one.h, one.set);
        const TileRows<Value> made = rows_for(to, dq[level].stride, sets, d, mine.out);
        std::fill_n(mine.factors, sets, scale);
        weighted_sums(key, keys.stride, all, steps, d, mine.factors, made.data, made.stride);
        store_rows(made, sets, d, to, dq[level].stride);
        const int64_t row = one.first - whole.first;
        spread(query.data, query.stride, d, steps, all, scale, level > 0, dk_rows.data + row * dk_rows.stride,
               dk_rows.stride);
        spread(slope.data, slope.stride, e, scores, all, Value(1), level > 0, dv_rows.data + row * dv_rows.stride,
               dv_rows.stride);
        add_executed_flops(4 * read.tokens * (d + e));
      });
      store_rows(dk_rows, whole.count, d, stored_dk, dk.stride);
      store_rows(dv_rows, whole.count, e, stored_dv, dv.stride);
    });
  });
  return result;
}

}  // namespace xformer::kernels
