// Feed-forward parts on the CPU: both products and what lies between them while a block of rows is in the cache.
#include "kernels/feed_forward/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include "kernels/cpu/part_tables.h"
#include "kernels/cpu/units.h"
#include "kernels/feed_forward/part_rows.h"

namespace xformer::kernels {

FeedForwardForward feed_forward_forward_cpu(const at::Tensor& x, const LinearMap& in, const LinearMap& out_map,
                                            bool tanh, const DropoutPlace& drop, const at::Tensor& needed) {
  const PartPass pass(DrawnBy::kForward, x, in, out_map, tanh, drop, needed);
  const RowParts rows(pass.rows, pass.row_width());
  FeedForwardForward result{at::empty(pass.with_width(pass.k), x.options()),
                            at::empty(pass.with_width(pass.f), x.options())};
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "feed_forward", [&] {
    PartForward<scalar_t> forward(pass, result.z, /*from_memory=*/true, workers_for(rows.blocks));
    auto* const out = result.out.mutable_data_ptr<scalar_t>();
    for_units(rows.blocks, rows.block_rows * pass.f * (pass.m + pass.k), [&](int64_t block, int64_t worker) {
      const int64_t begin = block * rows.block_rows;
      pass.needed.for_runs(begin, std::min(rows.block_rows, rows.rows - begin),
                           [&](int64_t first, int64_t count, Needed which) {
                             scalar_t* const to = out + first * pass.k;
                             if (which == Needed::kNone) pass.needed.clear(first, count, pass.k, to);
                             else forward.rows(first, count, which, worker, pass.inputs<scalar_t>(first), to);
                           });
    });
  });
  return result;
}

FeedForwardGradients feed_forward_backward_cpu(const at::Tensor& gradient_in, const at::Tensor& x, const at::Tensor& z,
                                               const LinearMap& in, const LinearMap& out, bool tanh,
                                               const DropoutPlace& drop, const at::Tensor& needed, bool x_wanted) {
  const PartPass pass(DrawnBy::kBackward, x, in, out, tanh, drop, needed);
  const RowParts rows(pass.rows, pass.row_width(), pass.table());
  const at::Tensor gradient = gradient_in.contiguous();
  const PartTables tables(rows, pass.table(), computed_options(x));
  FeedForwardGradients result;
  if (x_wanted) result.x = at::empty_like(pass.x);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "feed_forward_backward", [&] {
    PartBackward<scalar_t> backward(pass, z, /*from_memory=*/true, x_wanted, workers_for(rows.parts));
    auto* const x_slopes = x_wanted ? result.x.mutable_data_ptr<scalar_t>() : nullptr;
    const auto* const slopes = gradient.const_data_ptr<scalar_t>();
    for_units(rows.parts, rows.part_blocks * rows.block_rows * pass.table(), [&](int64_t part, int64_t worker) {
      auto* const own = tables.begin<Computed<scalar_t>>(part);
      rows.for_blocks(part, [&](int64_t begin, int64_t some) {
        pass.needed.for_runs(begin, some, [&](int64_t first, int64_t count, Needed which) {
          backward.rows(first, count, which, worker, slopes + first * pass.k, pass.inputs<scalar_t>(first),
                        x_wanted ? x_slopes + first * pass.m : nullptr, own);
        });
      });
    });
  });
  pass.take_gradients(tables.sum(), result.in, result.out);
  return result;
}

}  // namespace xformer::kernels
