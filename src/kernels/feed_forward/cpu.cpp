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
};

template <class Stored>
struct Scratch {
  std::vector<Computed<Stored>> z, rows, active, slope;
  std::vector<Stored> factor, needed_inputs, needed_slopes;
  std::vector<uint16_t> draws;
};

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
    const auto *const in_bias = pass.in_bias.const_data_ptr<Value>(), *const out_bias =
                                                                          pass.out_bias.const_data_ptr<Value>();
    for_units(rows.blocks, rows.block_rows * pass.f * (pass.m + pass.k), [&](int64_t block, int64_t worker) {
      Scratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
      const int64_t begin = block * rows.block_rows, block_rows = std::min(rows.block_rows, rows.rows - begin);
      pass.needed.for_runs(begin, block_rows, [&](int64_t first, int64_t count, Needed which) {
        scalar_t* const z_to = result.z.mutable_data_ptr<scalar_t>() + first * pass.f;
        scalar_t* const to = result.out.mutable_data_ptr<scalar_t>() + first * pass.k;
        if (which == Needed::kNone) return pass.needed.clear(first, count, pass.k, to);
        Value *const z = place_for(z_to, count * pass.f, mine.z), *const active = grown(mine.active, count * pass.f);
        repeat_row(in_bias, count, pass.f, z);
        gemm(count, {pass.x.const_data_ptr<scalar_t>() + first * pass.m, pass.m}, in_factor, Value(1), z, pass.f);
        store(z, count * pass.f, z_to);
        gelu_run(pass.run<Value>(first, count, mine.draws), z, active);
        Value* const out = place_for(to, count * pass.k, mine.rows);
        repeat_row(out_bias, count, pass.k, out);
        gemm(count, {factor_of<scalar_t>(active, count * pass.f, mine.factor), pass.f}, out_factor, Value(1), out,
             pass.k);
        store(out, count * pass.k, to);
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
        Value *const active = grown(mine.active, count * f), *const slope = grown(mine.slope, count * f);
        gemm(count, {from, k}, out_factor, Value(0), slope, f);
        gelu_both_run(pass.run<Value>(first, count, mine.draws),
                      loaded(z.const_data_ptr<scalar_t>() + first * f, count * f, mine.z), active, slope);
        // The wide tiles as second factors, which are rounded while they are laid out; so W1's gradient lies turned
        // over.
        gemm_rounding<scalar_t>(k, f, count, {from, k, true}, {active, f}, Value(1), own + out_at, f);
        add_rows(loaded(from, count * k, mine.rows), count, k, own + out_bias_at);
        gemm_rounding<scalar_t>(pass.m, f, count, {inputs, pass.m, true}, {slope, f}, Value(1), own, f);
        add_rows(slope, count, f, own + in_bias_at);
        if (!x_wanted) return;
        Value* const into = place_for(to, count * pass.m, mine.rows);
        gemm(count, {factor_of<scalar_t>(slope, count * f, mine.factor), f}, in_factor, Value(0), into, pass.m);
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
