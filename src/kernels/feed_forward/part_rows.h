// Rows of a feed-forward part on the CPU (feed_forward.h): both products and what lies between them, forwards and
// backwards.
#pragma once

#include <span>

#include "core/error.h"
#include "kernels/cpu/add_rows.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/needed_rows.h"
#include "kernels/cpu/stored.h"
#include "kernels/feed_forward/active_rows.h"
#include "kernels/feed_forward/cpu.h"
#include "kernels/gelu_dropout/cpu.h"
#include "kernels/linear/cpu.h"

namespace xformer::kernels {

// Contiguous operands.
struct PartPass {
  at::Tensor x, in_weight, in_bias, out_weight, out_bias;
  int64_t m, f, k, rows;
  NeededRows needed;
  ElementDraws draws;
  bool tanh;

  PartPass(DrawnBy pass, const at::Tensor& given, const LinearMap& in, const LinearMap& out, bool tanh_form,
           const DropoutPlace& drop, const at::Tensor& needed_rows)
      : x(given.contiguous()),
        in_weight(in.weight.contiguous()),
        in_bias(in.bias.contiguous()),
        out_weight(out.weight.contiguous()),
        out_bias(out.bias.contiguous()),
        m(x.size(-1)),
        f(in_weight.size(0)),
        k(out_weight.size(0)),
        rows(x.numel() / m),
        needed(needed_rows, rows),
        draws(drop, at::empty({1}, at::kByte).expand(with_width(f)), pass),
        tanh(tanh_form) {
    XF_ASSERT(in_weight.size(1) == m && out_weight.size(1) == f, "a feed-forward part of [{}, {}] and [{}, {}] for {}",
              f, in_weight.size(1), k, out_weight.size(1), m);
  }

  [[nodiscard]] std::vector<int64_t> with_width(int64_t width) const {
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = width;
    return shape;
  }
  // Elements of a row in all that a block holds.
  [[nodiscard]] int64_t row_width() const { return m + 2 * f + k; }
  [[nodiscard]] int64_t in_width() const { return m; }
  template <class Stored>
  [[nodiscard]] const Stored* inputs(int64_t first) const {
    return x.const_data_ptr<Stored>() + first * m;
  }

  // Gradients of weights and biases lie in a table: W1 [m, f], turned over, since the wide tiles are second factors;
  // b1 [f]; W2 [k, f]; b2 [k].
  [[nodiscard]] int64_t in_bias_at() const { return m * f; }
  [[nodiscard]] int64_t out_at() const { return in_bias_at() + f; }
  [[nodiscard]] int64_t out_bias_at() const { return out_at() + k * f; }
  [[nodiscard]] int64_t table() const { return out_bias_at() + k; }
  void take_gradients(const at::Tensor& sums, LinearMap& in, LinearMap& out) const {
    in = {sums.narrow(0, 0, m * f).view({m, f}).t().contiguous(), sums.narrow(0, in_bias_at(), f)};
    out = {sums.narrow(0, out_at(), k * f).view({k, f}), sums.narrow(0, out_bias_at(), k)};
  }

  // The activation's elements of some rows, with their draws.
  template <class Value>
  [[nodiscard]] GeluRun<Value> run(int64_t first, int64_t count, std::vector<uint16_t>& memory) const {
    const uint16_t* const drawn = draws.draw(first * f, count * f, memory);
    return {count * f, tanh, drawn, draws.threshold(), static_cast<Value>(draws.keep())};
  }
  [[nodiscard]] by_512::ActiveRows rows_of(const GeluRun<float>& run, int64_t count) const {
    return {count, f, tanh, run.draws, run.threshold, run.keep};
  }
};

template <class Stored>
struct PartScratch {
  std::vector<Computed<Stored>> z, rows, active, slope;
  std::vector<Stored> factor, needed_inputs, needed_slopes;
  std::vector<uint16_t> draws;
  PairedFactor paired_active, paired_slope;
};

// Whether rows of bf16 go by in one pass between the products (active_rows.h).
template <class Stored>
bool active_in_one_pass(const PartPass& pass) {
  return kConverts<Stored> && pairs_possible({nullptr, std::max(pass.m, pass.k), true}, pass.f);
}

// Rows that the products of the next block read where they lie: none, or `count` of each, side by side.
template <class Stored>
using NextRowsOf = std::span<const TileRows<const Stored>>;

// work(first, rows) for a block's rows, a few at once if next ones are asked for in between: a product reads many rows
// at the same time, which processors do not foresee.
template <class Stored, class Work>
void for_few_rows(int64_t count, NextRowsOf<Stored> next, const Work& work) {
  constexpr int64_t kFew = 8;
  const int64_t at_once = next.empty() ? count : kFew;
  for (int64_t first = 0; first < count; first += at_once) {
    const int64_t rows = std::min(at_once, count - first);
    for (const TileRows<const Stored>& one : next) fetch_row(one.data + first * one.stride, rows * one.stride);
    work(first, rows);
  }
}

// The activation of rows `x`, as the second product takes it; z goes to where it is kept.
template <class Stored, class Value = Computed<Stored>>
const Stored* activate(const PartPass& pass, bool one_pass, int64_t first, int64_t count, const Stored* x,
                       NextRowsOf<Stored> next, const PackedFactor<Stored>& in_factor, Stored* z_to,
                       PartScratch<Stored>& mine) {
  const int64_t f = pass.f;
  const auto* const bias = pass.in_bias.const_data_ptr<Value>();
  const Operand<Stored> inputs{x, pass.m};
  const GeluRun<Value> run = pass.run<Value>(first, count, mine.draws);
  if constexpr (kConverts<Stored>)
    if (one_pass) {
      float* const sums = grown(mine.z, count * f);
      gemm(count, inputs, in_factor, 0.0F, sums, f);
      by_512::active_rows(pass.rows_of(run, count), sums, bias, z_to, grown(mine.factor, count * f));
      return mine.factor.data();
    }
  Value *const z = place_for(z_to, count * f, mine.z), *const active = grown(mine.active, count * f);
  repeat_row(bias, count, f, z);
  gemm(count, inputs, in_factor, Value(1), z, f);
  store(z, count * f, z_to);
  for_few_rows(count, next, [&](int64_t row, int64_t rows) {
    gelu_run(run.part(row * f, rows * f), z + row * f, active + row * f);
  });
  return factor_of<Stored>(active, count * f, mine.factor);
}

// Backwards from mine.slope, the gradient of what activate() gave: adds the gradients of both weights and of the first
// bias to a table; returns that of z as a product takes it. `from` is the gradient of the part, `inputs` its rows.
template <class Stored, class Value = Computed<Stored>>
const Stored* deactivate(const PartPass& pass, bool one_pass, int64_t first, int64_t count, const Stored* z,
                         const Stored* from, const Stored* inputs, NextRowsOf<Stored> next, Value* table,
                         PartScratch<Stored>& mine) {
  const int64_t f = pass.f, k = pass.k, m = pass.m;
  Value *const in_bias = table + pass.in_bias_at(), *const out_weight = table + pass.out_at();
  const GeluRun<Value> run = pass.run<Value>(first, count, mine.draws);
  Value* const slope = mine.slope.data();
  if constexpr (kConverts<Stored>)
    if (one_pass) {
      mine.paired_active.reset(count, f);
      mine.paired_slope.reset(count, f);
      by_512::active_gradient_rows(pass.rows_of(run, count), z, slope, mine.paired_active, mine.paired_slope,
                                   grown(mine.factor, count * f), in_bias);
      gemm(k, {from, k, true}, mine.paired_active, 1.0F, out_weight, f);
      gemm(m, {inputs, m, true}, mine.paired_slope, 1.0F, table, f);
      return mine.factor.data();
    }
  Value* const active = grown(mine.active, count * f);
  const Value* const zs = loaded(z, count * f, mine.z);
  for_few_rows(count, next, [&](int64_t row, int64_t rows) {
    const int64_t at = row * f;
    gelu_both_run(run.part(at, rows * f), zs + at, active + at, slope + at);
  });
  gemm_rounding<Stored>(k, f, count, {from, k, true}, {active, f}, Value(1), out_weight, f);
  gemm_rounding<Stored>(m, f, count, {inputs, m, true}, {slope, f}, Value(1), table, f);
  add_rows(slope, f, count, f, in_bias);
  return factor_of<Stored>(slope, count * f, mine.factor);
}

template <class Stored>
class PartForward {
  using Value = Computed<Stored>;

 public:
  // z [.., f] is kept where it lies. `from_memory`: inputs were not made in the cache just now.
  PartForward(const PartPass& pass, const at::Tensor& z, bool from_memory, int64_t workers)
      : pass_(pass),
        from_memory_(from_memory),
        one_pass_(active_in_one_pass<Stored>(pass)),
        z_(z.mutable_data_ptr<Stored>()),
        scratch_(static_cast<size_t>(workers)) {
    in_.pack(pass.rows, pass.m, pass.f, Value(1), {pass.in_weight.const_data_ptr<Value>(), pass.m, true});
    out_.pack(pass.rows, pass.f, pass.k, Value(1), {pass.out_weight.const_data_ptr<Value>(), pass.f, true});
  }

  // Of `inputs` [count, m], rows first .. first + count - 1, some of them needed or all, to `to` [count, k].
  void rows(int64_t first, int64_t count, Needed which, int64_t worker, const Stored* inputs, Stored* to) {
    PartScratch<Stored>& mine = scratch_[static_cast<size_t>(worker)];
    Stored* const z = z_ + first * pass_.f;
    const TileRows<const Stored> next{inputs + count * pass_.m, pass_.m};
    const Stored* const active =
        activate(pass_, one_pass_, first, count, inputs, {&next, from_memory_ ? size_t{1} : 0}, in_, z, mine);
    map_rows(count, pass_.k, {active, pass_.f}, out_, pass_.out_bias.const_data_ptr<Value>(), to, mine.rows);
    if (which == Needed::kAll) return;
    pass_.needed.clear(first, count, pass_.f, z);
    pass_.needed.clear(first, count, pass_.k, to);
  }

 private:
  const PartPass& pass_;
  bool from_memory_, one_pass_;
  Stored* z_;
  PackedFactor<Stored> in_, out_;
  std::vector<PartScratch<Stored>> scratch_;
};

template <class Stored>
class PartBackward {
  using Value = Computed<Stored>;

 public:
  // As PartForward has it, of inputs and gradients.
  PartBackward(const PartPass& pass, const at::Tensor& z, bool from_memory, bool x_wanted, int64_t workers)
      : pass_(pass),
        from_memory_(from_memory),
        one_pass_(active_in_one_pass<Stored>(pass)),
        z_(z.const_data_ptr<Stored>()),
        scratch_(static_cast<size_t>(workers)) {
    if (x_wanted) in_.pack(pass.rows, pass.f, pass.m, Value(1), {pass.in_weight.const_data_ptr<Value>(), pass.m});
    out_.pack(pass.rows, pass.k, pass.f, Value(1), {pass.out_weight.const_data_ptr<Value>(), pass.f});
  }

  // The gradient of the part of `inputs`, rows first .. first + count - 1, is `from` [count, k]; that of the inputs
  // goes to `to` [count, m], or nowhere (nullptr) if it is not wanted; adds to `table`.
  void rows(int64_t first, int64_t count, Needed which, int64_t worker, const Stored* from, const Stored* inputs,
            Stored* to, Value* table) {
    const int64_t m = pass_.m, f = pass_.f, k = pass_.k;
    PartScratch<Stored>& mine = scratch_[static_cast<size_t>(worker)];
    if (which == Needed::kNone) {
      if (to != nullptr) pass_.needed.clear(first, count, m, to);
      return;
    }
    const TileRows<const Stored> next[] = {{from + count * k, k}, {inputs + count * m, m}};
    from = pass_.needed.only(which, first, count, k, from, mine.needed_slopes);
    inputs = pass_.needed.only(which, first, count, m, inputs, mine.needed_inputs);
    Value* const slope = grown(mine.slope, count * f);
    gemm(count, {from, k}, out_, Value(0), slope, f);
    const Stored* const slopes = deactivate(pass_, one_pass_, first, count, z_ + first * f, from, inputs,
                                            {next, from_memory_ ? std::size(next) : 0}, table, mine);
    add_rows(from, k, count, k, table + pass_.out_bias_at());
    if (to == nullptr) return;
    Value* const into = place_for(to, count * m, mine.rows);
    gemm(count, {slopes, f}, in_, Value(0), into, m);
    store(into, count * m, to);
  }

 private:
  const PartPass& pass_;
  bool from_memory_, one_pass_;
  const Stored* z_;
  PackedFactor<Stored> in_, out_;
  std::vector<PartScratch<Stored>> scratch_;
};

}  // namespace xformer::kernels
