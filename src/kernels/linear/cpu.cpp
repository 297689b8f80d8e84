// Linear maps on the CPU.
#include "kernels/linear/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/row_parts.h"
#include "kernels/cpu/units.h"

namespace xformer::kernels {

namespace {

// Elements of a row of input and results.
int64_t row_width(const at::Tensor& x, const std::vector<LinearMap>& maps) {
  int64_t width = x.size(-1);
  for (const LinearMap& map : maps) width += map.weight.size(0);
  return width;
}

std::vector<LinearMap> contiguous(const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases) {
  std::vector<LinearMap> result;
  for (size_t i = 0; i < weights.size(); ++i)
    result.push_back({weights[i].contiguous(), biases.empty() ? at::Tensor() : biases[i].contiguous()});
  return result;
}

}  // namespace

std::vector<at::Tensor> linear_forward_cpu(const at::Tensor& x_in, const std::vector<at::Tensor>& weights,
                                           const std::vector<at::Tensor>& biases) {
  const at::Tensor x = x_in.contiguous();
  const std::vector<LinearMap> maps = contiguous(weights, biases);
  const int64_t in = x.size(-1);
  std::vector<int64_t> shape = x.sizes().vec();
  std::vector<at::Tensor> results;
  for (const LinearMap& map : maps) {
    XF_ASSERT(map.weight.dim() == 2 && map.weight.size(1) == in, "a linear map of {} for rows of {}",
              map.weight.size(1), in);
    shape.back() = map.weight.size(0);
    results.push_back(at::empty(shape, x.options()));
  }
  const RowParts blocks(x.numel() / in, row_width(x, maps));
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "linear", [&] {
    for_units(blocks.blocks, blocks.block_rows * in * maps[0].weight.size(0), [&](int64_t block, int64_t /*worker*/) {
      const int64_t row = block * blocks.block_rows, rows = std::min(blocks.block_rows, blocks.rows - row);
      for (size_t i = 0; i < maps.size(); ++i) {
        const int64_t out = maps[i].weight.size(0);
        scalar_t* const into = results[i].mutable_data_ptr<scalar_t>() + row * out;
        if (maps[i].bias.defined())
          for (int64_t r = 0; r < rows; ++r) std::copy_n(maps[i].bias.const_data_ptr<scalar_t>(), out, into + r * out);
        gemm(rows, out, in, scalar_t(1), {x.const_data_ptr<scalar_t>() + row * in, in},
             {maps[i].weight.const_data_ptr<scalar_t>(), in, true}, scalar_t(maps[i].bias.defined()), into, out);
      }
    });
  });
  return results;
}

LinearGradients linear_backward_cpu(const std::vector<at::Tensor>& gradients_in, const at::Tensor& x_in,
                                    const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases,
                                    bool x_wanted) {
  const at::Tensor x = x_in.contiguous();
  const std::vector<LinearMap> all_maps = contiguous(weights, biases);
  const int64_t in = x.size(-1);
  std::vector<at::Tensor> gradients;
  std::vector<LinearMap> maps;
  std::vector<size_t> places;   // of `maps` in all_maps
  std::vector<int64_t> starts;  // of each map's weight and bias in a table
  int64_t table = 0;
  for (size_t i = 0; i < all_maps.size(); ++i) {
    if (!gradients_in[i].defined()) continue;
    gradients.push_back(gradients_in[i].contiguous());
    maps.push_back(all_maps[i]);
    places.push_back(i);
    starts.push_back(table);
    table += all_maps[i].weight.numel() + all_maps[i].weight.size(0);
  }
  XF_ASSERT(!maps.empty(), "no gradient of any map");
  const RowParts blocks(x.numel() / in, row_width(x, maps), table);
  const at::Tensor tables = at::zeros({blocks.parts, table}, x.options());
  LinearGradients result{{}, std::vector<at::Tensor>(weights.size()), std::vector<at::Tensor>(biases.size())};
  if (x_wanted) result.x = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "linear_backward", [&] {
    for_units(blocks.parts, blocks.part_blocks * blocks.block_rows * table, [&](int64_t part, int64_t /*worker*/) {
      scalar_t* const own = tables.mutable_data_ptr<scalar_t>() + part * table;
      blocks.for_blocks(part, [&](int64_t row, int64_t rows) {
        const scalar_t* const inputs = x.const_data_ptr<scalar_t>() + row * in;
        for (size_t i = 0; i < maps.size(); ++i) {
          const int64_t out = maps[i].weight.size(0);
          const scalar_t* const slopes = gradients[i].const_data_ptr<scalar_t>() + row * out;
          if (x_wanted)
            gemm(rows, in, out, scalar_t(1), {slopes, out}, {maps[i].weight.const_data_ptr<scalar_t>(), in},
                 scalar_t(i > 0), result.x.mutable_data_ptr<scalar_t>() + row * in, in);
          gemm(out, in, rows, scalar_t(1), {slopes, out, true}, {inputs, in}, scalar_t(1), own + starts[i], in);
          if (maps[i].bias.defined()) add_rows(slopes, rows, out, own + starts[i] + out * in);
        }
      });
    });
  });
  const at::Tensor sums = blocks.parts == 1 ? tables.select(0, 0) : tables.sum(0);
  for (size_t i = 0; i < maps.size(); ++i) {
    const int64_t out = maps[i].weight.size(0);
    result.weights[places[i]] = sums.narrow(0, starts[i], out * in).view({out, in});
    if (maps[i].bias.defined()) result.biases[places[i]] = sums.narrow(0, starts[i] + out * in, out);
  }
  return result;
}

}  // namespace xformer::kernels
