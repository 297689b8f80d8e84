// Linear maps on the CPU.
#include "kernels/linear/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/needed_rows.h"
#include "kernels/cpu/part_tables.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"

namespace xformer::kernels {

namespace {

// Elements of a row of input and results.
int64_t row_width(const at::Tensor& x, const std::vector<LinearMap>& maps) {
  int64_t width = x.size(-1);
  for (const LinearMap& map : maps) width += map.weight.size(0);
  return width;
}

// Weights as products take them for rows of a type.
std::vector<LinearMap> contiguous(const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases,
                                  at::ScalarType type) {
  std::vector<LinearMap> result;
  for (size_t i = 0; i < weights.size(); ++i)
    result.push_back({weights[i].to(type).contiguous(), biases.empty() ? at::Tensor() : biases[i].contiguous()});
  return result;
}

}  // namespace

std::vector<at::Tensor> linear_forward_cpu(const at::Tensor& x_in, const std::vector<at::Tensor>& weights,
                                           const std::vector<at::Tensor>& biases, const at::Tensor& needed) {
  const at::Tensor x = x_in.contiguous();
  const std::vector<LinearMap> maps = contiguous(weights, biases, x.scalar_type());
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
  const NeededRows needed_rows(needed, blocks.rows);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "linear", [&] {
    using Value = Computed<scalar_t>;
    std::vector<PackedFactor<scalar_t>> factors(maps.size());
    for (size_t i = 0; i < maps.size(); ++i)
      factors[i].pack(blocks.rows, in, maps[i].weight.size(0), Value(1),
                      {maps[i].weight.const_data_ptr<scalar_t>(), in, true});
    std::vector<std::vector<Value>> rooms(static_cast<size_t>(workers_for(blocks.blocks)));
    for_units(blocks.blocks, blocks.block_rows * in * maps[0].weight.size(0), [&](int64_t block, int64_t worker) {
      const int64_t begin = block * blocks.block_rows, count = std::min(blocks.block_rows, blocks.rows - begin);
      needed_rows.for_runs(begin, count, [&](int64_t row, int64_t rows, Needed which) {
        for (size_t i = 0; i < maps.size(); ++i) {
          const int64_t out = maps[i].weight.size(0);
          const at::Tensor& bias = maps[i].bias;
          scalar_t* const to = results[i].mutable_data_ptr<scalar_t>() + row * out;
          if (which != Needed::kNone)
            map_rows(rows, out, {x.const_data_ptr<scalar_t>() + row * in, in}, factors[i],
                     bias.defined() ? bias.const_data_ptr<Value>() : nullptr, to, rooms[static_cast<size_t>(worker)]);
          if (which != Needed::kAll) needed_rows.clear(row, rows, out, to);
        }
      });
    });
  });
  return results;
}

LinearGradients linear_backward_cpu(const std::vector<at::Tensor>& gradients_in, const at::Tensor& x_in,
                                    const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases,
                                    const at::Tensor& needed, bool x_wanted) {
  const at::Tensor x = x_in.contiguous();
  const std::vector<LinearMap> all_maps = contiguous(weights, biases, x.scalar_type());
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
  const NeededRows needed_rows(needed, blocks.rows);
  const PartTables tables(blocks, table, computed_options(x));
  LinearGradients result{{}, std::vector<at::Tensor>(weights.size()), std::vector<at::Tensor>(biases.size())};
  if (x_wanted) result.x = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "linear_backward", [&] {
    using Value = Computed<scalar_t>;
    struct Room {
      std::vector<Value> x;
      std::vector<scalar_t> needed_inputs, needed_slopes;
    };
    std::vector<PackedFactor<scalar_t>> factors(maps.size());
    for (size_t i = 0; x_wanted && i < maps.size(); ++i)
      factors[i].pack(blocks.rows, maps[i].weight.size(0), in, Value(1),
                      {maps[i].weight.const_data_ptr<scalar_t>(), in});
    std::vector<Room> rooms(static_cast<size_t>(workers_for(blocks.parts)));
    for_units(blocks.parts, blocks.part_blocks * blocks.block_rows * table, [&](int64_t part, int64_t worker) {
      Room& room = rooms[static_cast<size_t>(worker)];
      Value* const own = tables.begin<Value>(part);
      const auto add_run = [&](int64_t row, int64_t rows, Needed which) {
        scalar_t* const to = x_wanted ? result.x.mutable_data_ptr<scalar_t>() + row * in : nullptr;
        if (which == Needed::kNone) {
          if (x_wanted) needed_rows.clear(row, rows, in, to);
          return;
        }
        const scalar_t* const inputs =
            needed_rows.only(which, row, rows, in, x.const_data_ptr<scalar_t>() + row * in, room.needed_inputs);
        Value* const into = x_wanted ? place_for(to, rows * in, room.x) : nullptr;
        for (size_t i = 0; i < maps.size(); ++i) {
          const int64_t out = maps[i].weight.size(0);
          const scalar_t* const slopes = needed_rows.only(
              which, row, rows, out, gradients[i].const_data_ptr<scalar_t>() + row * out, room.needed_slopes);
          map_gradient_rows(rows, out, in, slopes, inputs, factors[i], Value(i > 0), into, maps[i].bias.defined(),
                            own + starts[i]);
        }
        if (x_wanted) store(into, rows * in, to);
      };
      blocks.for_blocks(part, [&](int64_t row, int64_t rows) { needed_rows.for_runs(row, rows, add_run); });
    });
  });
  const at::Tensor sums = tables.sum();
  for (size_t i = 0; i < maps.size(); ++i) {
    const int64_t out = maps[i].weight.size(0);
    result.weights[places[i]] = sums.narrow(0, starts[i], out * in).view({out, in});
    if (maps[i].bias.defined()) result.biases[places[i]] = sums.narrow(0, starts[i] + out * in, out);
  }
  return result;
}

}  // namespace xformer::kernels
