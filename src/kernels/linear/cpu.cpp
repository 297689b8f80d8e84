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
#include "kernels/residual_norm/norm_before.h"

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

// Of x, or of its norm where there are norm weights.
NormedLinearForward forward(const at::Tensor& x_in, const std::vector<at::Tensor>& weights,
                            const std::vector<at::Tensor>& biases, const NormWeights& norm, const at::Tensor& needed) {
  // The rows, and which of them are needed, also where there is no norm.
  const NormPass entry(DrawnBy::kForward, x_in, /*has_branch=*/false, {}, {}, needed);
  const NeededRows& needed_rows = entry.needed;
  const at::Tensor& x = entry.x;
  const std::vector<LinearMap> maps = contiguous(weights, biases);
  const int64_t in = x.size(-1);
  std::vector<int64_t> shape = x.sizes().vec();
  NormedLinearForward made;
  std::vector<at::Tensor>& results = made.results;
  for (const LinearMap& map : maps) {
    XF_ASSERT(map.weight.dim() == 2 && map.weight.size(1) == in, "a linear map of {} for rows of {}",
              map.weight.size(1), in);
    shape.back() = map.weight.size(0);
    results.push_back(at::empty(shape, x.options()));
  }
  if (norm.weight.defined()) {
    made.mean = at::empty({entry.rows}, computed_options(x));
    made.rstd = at::empty_like(made.mean);
  }
  const RowParts blocks(entry.rows, row_width(x, maps));
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "linear", [&] {
    using Value = Computed<scalar_t>;
    std::vector<PackedFactor<scalar_t>> factors(maps.size());
    for (size_t i = 0; i < maps.size(); ++i)
      factors[i].pack(blocks.rows, in, maps[i].weight.size(0), Value(1),
                      {maps[i].weight.const_data_ptr<Value>(), in, true});
    std::vector<std::vector<Value>> rooms(static_cast<size_t>(workers_for(blocks.blocks)));
    auto before = norm_before<scalar_t>(norm, entry, made.mean, made.rstd, workers_for(blocks.blocks));
    for_units(blocks.blocks, blocks.block_rows * in * maps[0].weight.size(0), [&](int64_t block, int64_t worker) {
      const int64_t begin = block * blocks.block_rows, count = std::min(blocks.block_rows, blocks.rows - begin);
      needed_rows.for_runs(begin, count, [&](int64_t row, int64_t rows, Needed which) {
        const scalar_t* inputs = x.const_data_ptr<scalar_t>() + row * in;
        if (before && which != Needed::kNone) inputs = before->rows(row, rows, which, worker, /*again=*/false);
        for (size_t i = 0; i < maps.size(); ++i) {
          const int64_t out = maps[i].weight.size(0);
          const at::Tensor& bias = maps[i].bias;
          scalar_t* const to = results[i].mutable_data_ptr<scalar_t>() + row * out;
          if (which != Needed::kNone)
            map_rows(rows, out, {inputs, in}, factors[i], bias.defined() ? bias.const_data_ptr<Value>() : nullptr, to,
                     rooms[static_cast<size_t>(worker)]);
          if (which != Needed::kAll) needed_rows.clear(row, rows, out, to);
        }
      });
    });
  });
  return made;
}

NormedLinearGradients backward(const std::vector<at::Tensor>& gradients_in, const at::Tensor& past_in,
                               const at::Tensor& x_in, const std::vector<at::Tensor>& weights,
                               const std::vector<at::Tensor>& biases, const NormWeights& norm, const at::Tensor& mean,
                               const at::Tensor& rstd, const at::Tensor& needed, bool x_wanted) {
  const NormPass entry(DrawnBy::kBackward, x_in, /*has_branch=*/false, {}, {}, needed);
  const NeededRows& needed_rows = entry.needed;
  const at::Tensor& x = entry.x;
  const at::Tensor past = past_in.defined() ? past_in.contiguous() : past_in;
  const bool normed = norm.weight.defined();
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
  const int64_t norm_at = table;
  if (normed) table += 2 * in;
  const RowParts blocks(entry.rows, row_width(x, maps), table);
  const PartTables tables(blocks, table, computed_options(x));
  NormedLinearGradients all;
  LinearGradients& result = all.maps;
  result.weights.resize(weights.size()), result.biases.resize(biases.size());
  if (x_wanted) result.x = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "linear_backward", [&] {
    using Value = Computed<scalar_t>;
    struct Room {
      std::vector<Value> x;
      std::vector<scalar_t> needed_inputs, needed_slopes;
    };
    std::vector<PackedFactor<scalar_t>> factors(maps.size());
    for (size_t i = 0; x_wanted && i < maps.size(); ++i)
      factors[i].pack(blocks.rows, maps[i].weight.size(0), in, Value(1), {maps[i].weight.const_data_ptr<Value>(), in});
    std::vector<Room> rooms(static_cast<size_t>(workers_for(blocks.parts)));
    auto before = norm_before<scalar_t>(norm, entry, mean, rstd, workers_for(blocks.parts));
    const auto* const past_rows = past.defined() ? past.const_data_ptr<scalar_t>() : nullptr;
    for_units(blocks.parts, blocks.part_blocks * blocks.block_rows * table, [&](int64_t part, int64_t worker) {
      Room& room = rooms[static_cast<size_t>(worker)];
      Value* const own = tables.begin<Value>(part);
      const auto add_run = [&](int64_t row, int64_t rows, Needed which) {
        scalar_t* const to = x_wanted ? result.x.mutable_data_ptr<scalar_t>() + row * in : nullptr;
        const scalar_t* const beside = past_rows == nullptr ? nullptr : past_rows + row * in;
        if (which == Needed::kNone) {
          if (beside != nullptr) stream_copy(beside, to, static_cast<size_t>(rows * in) * sizeof(scalar_t));
          else if (x_wanted) needed_rows.clear(row, rows, in, to);
          return;
        }
        const scalar_t* const inputs =
            before
                ? before->rows(row, rows, which, worker, /*again=*/true)
                : needed_rows.only(which, row, rows, in, x.const_data_ptr<scalar_t>() + row * in, room.needed_inputs);
        scalar_t* const slopes_to = before ? before->slopes(rows, worker) : to;
        Value* const into = x_wanted ? place_for(slopes_to, rows * in, room.x) : nullptr;
        for (size_t i = 0; i < maps.size(); ++i) {
          const int64_t out = maps[i].weight.size(0);
          const scalar_t* const slopes = needed_rows.only(
              which, row, rows, out, gradients[i].const_data_ptr<scalar_t>() + row * out, room.needed_slopes);
          map_gradient_rows(rows, out, in, slopes, inputs, factors[i], Value(i > 0), into, maps[i].bias.defined(),
                            own + starts[i]);
        }
        if (x_wanted) store(into, rows * in, slopes_to);
        if (before) before->gradients(rows, worker, beside, to, own + norm_at);
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
  if (normed) all.weight = sums.narrow(0, norm_at, in), all.bias = sums.narrow(0, norm_at + in, in);
  return all;
}

}  // namespace

std::vector<at::Tensor> linear_forward_cpu(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                           const std::vector<at::Tensor>& biases, const at::Tensor& needed) {
  return forward(x, weights, biases, {}, needed).results;
}

NormedLinearForward normed_linear_forward_cpu(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                              const std::vector<at::Tensor>& biases, const NormWeights& norm,
                                              const at::Tensor& needed) {
  return forward(x, weights, biases, norm, needed);
}

LinearGradients linear_backward_cpu(const std::vector<at::Tensor>& gradients, const at::Tensor& x,
                                    const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases,
                                    const at::Tensor& needed, bool x_wanted) {
  return backward(gradients, {}, x, weights, biases, {}, {}, {}, needed, x_wanted).maps;
}

NormedLinearGradients normed_linear_backward_cpu(const std::vector<at::Tensor>& gradients, const at::Tensor& past,
                                                 const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                                 const std::vector<at::Tensor>& biases, const NormWeights& norm,
                                                 const at::Tensor& mean, const at::Tensor& rstd,
                                                 const at::Tensor& needed) {
  return backward(gradients, past, x, weights, biases, norm, mean, rstd, needed, /*x_wanted=*/true);
}

}  // namespace xformer::kernels
