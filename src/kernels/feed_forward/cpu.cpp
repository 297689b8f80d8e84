// Feed-forward parts on the CPU: both products and what lies between them while a block of rows is in the cache.
#include "kernels/feed_forward/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include "core/error.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/row_parts.h"
#include "kernels/cpu/units.h"
#include "kernels/gelu_dropout/cpu.h"
#include "kernels/linear/cpu.h"

namespace xformer::kernels {

namespace {

// Contiguous operands, and how their rows are walked.
struct Pass {
  at::Tensor x, in_weight, in_bias, out_weight, out_bias;
  int64_t m, f, k;
  RowParts rows;
  ElementDraws draws;
  bool tanh;

  Pass(const at::Tensor& given, const LinearMap& in, const LinearMap& out, bool tanh_form, const DropoutPlace& drop,
       int64_t table)
      : x(given.contiguous()),
        in_weight(in.weight.contiguous()),
        in_bias(in.bias.contiguous()),
        out_weight(out.weight.contiguous()),
        out_bias(out.bias.contiguous()),
        m(x.size(-1)),
        f(in_weight.size(0)),
        k(out_weight.size(0)),
        rows(x.numel() / m, m + 2 * f + k, table),
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

template <class Value>
void fill_bias(const at::Tensor& bias, int64_t count, Value* rows) {
  const int64_t width = bias.numel();
  for (int64_t r = 0; r < count; ++r) std::copy_n(bias.const_data_ptr<Value>(), width, rows + r * width);
}

template <class Value>
struct Scratch {
  std::vector<Value> active, slope;
  std::vector<uint16_t> draws;
};

}  // namespace

FeedForwardForward feed_forward_forward_cpu(const at::Tensor& x, const LinearMap& in, const LinearMap& out, bool tanh,
                                            const DropoutPlace& drop) {
  const Pass pass(x, in, out, tanh, drop, 1);
  FeedForwardForward result{at::empty(pass.with_width(pass.k), x.options()),
                            at::empty(pass.with_width(pass.f), x.options())};
  const RowParts& rows = pass.rows;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "feed_forward", [&] {
    std::vector<Scratch<scalar_t>> scratch(static_cast<size_t>(workers_for(rows.blocks)));
    for_units(rows.blocks, rows.block_rows * pass.f * (pass.m + pass.k), [&](int64_t block, int64_t worker) {
      Scratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
      const int64_t first = block * rows.block_rows, count = std::min(rows.block_rows, rows.rows - first);
      scalar_t* const z = result.z.mutable_data_ptr<scalar_t>() + first * pass.f;
      scalar_t* const to = result.out.mutable_data_ptr<scalar_t>() + first * pass.k;
      mine.active.resize(static_cast<size_t>(rows.block_rows * pass.f));
      fill_bias(pass.in_bias, count, z);
      gemm(count, pass.f, pass.m, scalar_t(1), {pass.x.const_data_ptr<scalar_t>() + first * pass.m, pass.m},
           {pass.in_weight.const_data_ptr<scalar_t>(), pass.m, true}, scalar_t(1), z, pass.f);
      gelu_run(pass.run<scalar_t>(first, count, mine.draws), z, mine.active.data());
      fill_bias(pass.out_bias, count, to);
      gemm(count, pass.k, pass.f, scalar_t(1), {mine.active.data(), pass.f},
           {pass.out_weight.const_data_ptr<scalar_t>(), pass.f, true}, scalar_t(1), to, pass.k);
    });
  });
  return result;
}

FeedForwardGradients feed_forward_backward_cpu(const at::Tensor& gradient_in, const at::Tensor& x, const at::Tensor& z,
                                               const LinearMap& in, const LinearMap& out, bool tanh,
                                               const DropoutPlace& drop, bool x_wanted) {
  const int64_t in_size = in.weight.numel(), out_size = out.weight.numel(), f = in.weight.size(0),
                k = out.weight.size(0);
  // A part's table: gradients of W1, b1, W2, b2.
  const int64_t in_bias_at = in_size, out_at = in_size + f, out_bias_at = out_at + out_size, table = out_bias_at + k;
  const Pass pass(x, in, out, tanh, drop, table);
  const at::Tensor gradient = gradient_in.contiguous();
  const at::Tensor tables = at::zeros({pass.rows.parts, table}, x.options());
  FeedForwardGradients result;
  if (x_wanted) result.x = at::empty_like(pass.x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "feed_forward_backward", [&] {
    std::vector<Scratch<scalar_t>> scratch(static_cast<size_t>(workers_for(pass.rows.parts)));
    const auto* const in_weight = pass.in_weight.const_data_ptr<scalar_t>();
    const auto* const out_weight = pass.out_weight.const_data_ptr<scalar_t>();
    const int64_t size = pass.rows.part_blocks * pass.rows.block_rows * table;
    for_units(pass.rows.parts, size, [&](int64_t part, int64_t worker) {
      Scratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
      const auto elements = static_cast<size_t>(pass.rows.block_rows * f);
      mine.active.resize(elements), mine.slope.resize(elements);
      scalar_t* const own = tables.mutable_data_ptr<scalar_t>() + part * table;
      pass.rows.for_blocks(part, [&](int64_t first, int64_t count) {
        const scalar_t* const from = gradient.const_data_ptr<scalar_t>() + first * k;
        const scalar_t* const inputs = pass.x.const_data_ptr<scalar_t>() + first * pass.m;
        scalar_t *const active = mine.active.data(), *const slope = mine.slope.data();
        gemm(count, f, k, scalar_t(1), {from, k}, {out_weight, f}, scalar_t(0), slope, f);
        gelu_both_run(pass.run<scalar_t>(first, count, mine.draws), z.const_data_ptr<scalar_t>() + first * f, active,
                      slope);
        gemm(k, f, count, scalar_t(1), {from, k, true}, {active, f}, scalar_t(1), own + out_at, f);
        add_rows(from, count, k, own + out_bias_at);
        gemm(f, pass.m, count, scalar_t(1), {slope, f, true}, {inputs, pass.m}, scalar_t(1), own, pass.m);
        add_rows(slope, count, f, own + in_bias_at);
        if (x_wanted)
          gemm(count, pass.m, f, scalar_t(1), {slope, f}, {in_weight, pass.m}, scalar_t(0),
               result.x.mutable_data_ptr<scalar_t>() + first * pass.m, pass.m);
      });
    });
  });
  const at::Tensor sums = pass.rows.parts == 1 ? tables.select(0, 0) : tables.sum(0);
  const auto piece = [&](int64_t begin, const at::Tensor& like) {
    return sums.narrow(0, begin, like.numel()).view(like.sizes());
  };
  result.in = {piece(0, in.weight), piece(in_bias_at, in.bias)};
  result.out = {piece(out_at, out.weight), piece(out_bias_at, out.bias)};
  return result;
}

}  // namespace xformer::kernels
