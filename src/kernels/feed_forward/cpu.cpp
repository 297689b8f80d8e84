// Feed-forward parts on the CPU: both products and what lies between them while a block of rows is in the cache.
#include "kernels/feed_forward/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include "core/error.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/needed_rows.h"
#include "kernels/cpu/row_parts.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"
#include "kernels/feed_forward/active_rows.h"
#include "kernels/gelu_dropout/cpu.h"
#include "kernels/linear/cpu.h"

namespace xformer::kernels {

namespace {

// Contiguous operands, weights as products take them, and how their rows are walked.
struct Pass {
  at::Tensor x, in_weight, in_bias, out_weight, out_bias;
  int64_t m, f, k;
  RowParts rows;
  NeededRows needed;
  ElementDraws draws;
  bool tanh;

  Pass(const at::Tensor& given, const LinearMap& in, const LinearMap& out, bool tanh_form, const DropoutPlace& drop,
       const at::Tensor& needed_rows, int64_t table)
      : x(given.contiguous()),
        in_weight(in.weight.to(x.scalar_type()).contiguous()),
        in_bias(in.bias.contiguous()),
        out_weight(out.weight.to(x.scalar_type()).contiguous()),
        out_bias(out.bias.contiguous()),
        m(x.size(-1)),
        f(in_weight.size(0)),
        k(out_weight.size(0)),
        rows(x.numel() / m, m + 2 * f + k, table),
        needed(needed_rows, rows.rows),
        draws(drop, at::empty({1}, at::kByte).expand(with_width(f))),
        tanh(tanh_form) {
    XF_ASSERT(in_weight.size(1) == m && out_weight.size(1) == f, "a feed-forward part of [{}, {}] and [{}, {}] for {}",
              f, in_weight.size(1), k, out_weight.size(1), m);
  }

  [[nodiscard]] std::vector<int64_t> with_width(int64_t width) const {
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = width;
    return shape;
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
struct Scratch {
  std::vector<Computed<Stored>> z, rows, active, slope;
  std::vector<Stored> factor, needed_inputs, needed_slopes;
  std::vector<uint16_t> draws;
  PairedFactor paired_active, paired_slope;
};

// Whether rows of bf16 go by in one pass between the products (active_rows.h).
template <class Stored>
bool active_in_one_pass(const Pass& pass) {
  return kConverts<Stored> && pairs_possible({nullptr, std::max(pass.m, pass.k), true}, pass.f);
}

// The activation of some rows, as the second product takes it; z goes to where it is kept.
template <class Stored, class Value = Computed<Stored>>
const Stored* activate(const Pass& pass, bool one_pass, int64_t first, int64_t count,
                       const PackedFactor<Stored>& in_factor, Stored* z_to, Scratch<Stored>& mine) {
  const int64_t f = pass.f;
  const auto* const bias = pass.in_bias.const_data_ptr<Value>();
  const Operand<Stored> inputs{pass.x.const_data_ptr<Stored>() + first * pass.m, pass.m};
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
  gelu_run(run, z, active);
  return factor_of<Stored>(active, count * f, mine.factor);
}

// Of a part's table.
template <class Value>
struct WeightSums {
  Value *in, *in_bias, *out;  // [m, f], turned over, since the wide tiles are second factors; [f]; [k, f]
};

// Backwards from mine.slope, the gradient of what activate() gave: adds the gradients of both weights and of the first
// bias; returns that of z as a product takes it. `from` is the gradient of the part, `inputs` its rows.
template <class Stored, class Value = Computed<Stored>>
const Stored* deactivate(const Pass& pass, bool one_pass, int64_t first, int64_t count, const Stored* z,
                         const Stored* from, const Stored* inputs, const WeightSums<Value>& sums,
                         Scratch<Stored>& mine) {
  const int64_t f = pass.f, k = pass.k, m = pass.m;
  const GeluRun<Value> run = pass.run<Value>(first, count, mine.draws);
  Value* const slope = mine.slope.data();
  if constexpr (kConverts<Stored>)
    if (one_pass) {
      mine.paired_active.reset(count, f);
      mine.paired_slope.reset(count, f);
      by_512::active_gradient_rows(pass.rows_of(run, count), z, slope, mine.paired_active, mine.paired_slope,
                                   grown(mine.factor, count * f), sums.in_bias);
      gemm(k, {from, k, true}, mine.paired_active, 1.0F, sums.out, f);
      gemm(m, {inputs, m, true}, mine.paired_slope, 1.0F, sums.in, f);
      return mine.factor.data();
    }
  Value* const active = grown(mine.active, count * f);
  gelu_both_run(run, loaded(z, count * f, mine.z), active, slope);
  gemm_rounding<Stored>(k, f, count, {from, k, true}, {active, f}, Value(1), sums.out, f);
  gemm_rounding<Stored>(m, f, count, {inputs, m, true}, {slope, f}, Value(1), sums.in, f);
  add_rows(slope, count, f, sums.in_bias);
  return factor_of<Stored>(slope, count * f, mine.factor);
}

}  // namespace

FeedForwardForward feed_forward_forward_cpu(const at::Tensor& x, const LinearMap& in, const LinearMap& out_map,
                                            bool tanh, const DropoutPlace& drop, const at::Tensor& needed) {
  const Pass pass(x, in, out_map, tanh, drop, needed, 1);
  FeedForwardForward result{at::empty(pass.with_width(pass.k), x.options()),
                            at::empty(pass.with_width(pass.f), x.options())};
  const RowParts& rows = pass.rows;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "feed_forward", [&] {
    using Value = Computed<scalar_t>;
    PackedFactor<scalar_t> in_factor, out_factor;
    in_factor.pack(rows.rows, pass.m, pass.f, Value(1), {pass.in_weight.const_data_ptr<scalar_t>(), pass.m, true});
    out_factor.pack(rows.rows, pass.f, pass.k, Value(1), {pass.out_weight.const_data_ptr<scalar_t>(), pass.f, true});
    std::vector<Scratch<scalar_t>> scratch(static_cast<size_t>(workers_for(rows.blocks)));
    const bool one_pass = active_in_one_pass<scalar_t>(pass);
    const auto* const out_bias = pass.out_bias.const_data_ptr<Value>();
    for_units(rows.blocks, rows.block_rows * pass.f * (pass.m + pass.k), [&](int64_t block, int64_t worker) {
      Scratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
      const int64_t begin = block * rows.block_rows, block_rows = std::min(rows.block_rows, rows.rows - begin);
      pass.needed.for_runs(begin, block_rows, [&](int64_t first, int64_t count, Needed which) {
        scalar_t* const z_to = result.z.mutable_data_ptr<scalar_t>() + first * pass.f;
        scalar_t* const to = result.out.mutable_data_ptr<scalar_t>() + first * pass.k;
        if (which == Needed::kNone) return pass.needed.clear(first, count, pass.k, to);
        const scalar_t* const active = activate(pass, one_pass, first, count, in_factor, z_to, mine);
        map_rows(count, pass.k, {active, pass.f}, out_factor, out_bias, to, mine.rows);
        if (which == Needed::kAll) return;
        pass.needed.clear(first, count, pass.f, z_to);
        pass.needed.clear(first, count, pass.k, to);
      });
    });
  });
  return result;
}

FeedForwardGradients feed_forward_backward_cpu(const at::Tensor& gradient_in, const at::Tensor& x, const at::Tensor& z,
                                               const LinearMap& in, const LinearMap& out, bool tanh,
                                               const DropoutPlace& drop, const at::Tensor& needed, bool x_wanted) {
  const int64_t in_size = in.weight.numel(), out_size = out.weight.numel(), f = in.weight.size(0),
                k = out.weight.size(0);
  // A part's table: gradients of W1, b1, W2, b2.
  const int64_t in_bias_at = in_size, out_at = in_size + f, out_bias_at = out_at + out_size, table = out_bias_at + k;
  const Pass pass(x, in, out, tanh, drop, needed, table);
  const at::Tensor gradient = gradient_in.contiguous();
  const at::Tensor tables = at::zeros({pass.rows.parts, table}, computed_options(x));
  FeedForwardGradients result;
  if (x_wanted) result.x = at::empty_like(pass.x);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "feed_forward_backward", [&] {
    using Value = Computed<scalar_t>;
    PackedFactor<scalar_t> in_factor, out_factor;
    if (x_wanted)
      in_factor.pack(pass.rows.rows, f, pass.m, Value(1), {pass.in_weight.const_data_ptr<scalar_t>(), pass.m});
    out_factor.pack(pass.rows.rows, k, f, Value(1), {pass.out_weight.const_data_ptr<scalar_t>(), f});
    std::vector<Scratch<scalar_t>> scratch(static_cast<size_t>(workers_for(pass.rows.parts)));
    const bool one_pass = active_in_one_pass<scalar_t>(pass);
    const int64_t size = pass.rows.part_blocks * pass.rows.block_rows * table;
    for_units(pass.rows.parts, size, [&](int64_t part, int64_t worker) {
      Scratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
      Value* const own = tables.mutable_data_ptr<Value>() + part * table;
      const auto add_run = [&](int64_t first, int64_t count, Needed which) {
        scalar_t* const to = x_wanted ? result.x.mutable_data_ptr<scalar_t>() + first * pass.m : nullptr;
        if (which == Needed::kNone) {
          if (x_wanted) pass.needed.clear(first, count, pass.m, to);
          return;
        }
        const scalar_t* const from = pass.needed.only(
            which, first, count, k, gradient.const_data_ptr<scalar_t>() + first * k, mine.needed_slopes);
        const scalar_t* const inputs = pass.needed.only(
            which, first, count, pass.m, pass.x.const_data_ptr<scalar_t>() + first * pass.m, mine.needed_inputs);
        Value* const slope = grown(mine.slope, count * f);
        gemm(count, {from, k}, out_factor, Value(0), slope, f);
        const scalar_t* const slopes =
            deactivate(pass, one_pass, first, count, z.const_data_ptr<scalar_t>() + first * f, from, inputs,
                       {own, own + in_bias_at, own + out_at}, mine);
        add_rows(from, count, k, own + out_bias_at);
        if (!x_wanted) return;
        Value* const into = place_for(to, count * pass.m, mine.rows);
        gemm(count, {slopes, f}, in_factor, Value(0), into, pass.m);
        store(into, count * pass.m, to);
      };
      pass.rows.for_blocks(part, [&](int64_t first, int64_t count) { pass.needed.for_runs(first, count, add_run); });
    });
  });
  const at::Tensor sums = pass.rows.parts == 1 ? tables.select(0, 0) : tables.sum(0);
  const auto piece = [&](int64_t begin, const at::Tensor& like) {
    return sums.narrow(0, begin, like.numel()).view(like.sizes());
  };
  result.in = {sums.narrow(0, 0, in_size).view({pass.m, f}).t().contiguous(), piece(in_bias_at, in.bias)};
  result.out = {piece(out_at, out.weight), piece(out_bias_at, out.bias)};
  return result;
}

}  // namespace xformer::kernels
