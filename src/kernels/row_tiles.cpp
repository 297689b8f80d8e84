#include "kernels/row_tiles.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "kernels/fused.h"

namespace xformer::kernels {

namespace {

struct TiledWork {
  Tensors tensors;  // those that are cut, then the whole ones
  int64_t cut = 0, tile = 1;
  RowTileWork work;

  [[nodiscard]] int64_t length() const { return tensors[0].size(2); }

  // The work on rows first .. first + tile - 1 of `all`.
  [[nodiscard]] at::Tensor at_rows(const Tensors& all) const {
    const auto end = all.begin() + cut;
    return work({all.begin(), end}, {end, all.end()});
  }
  [[nodiscard]] Tensors tile_at(int64_t first) const {
    Tensors result = tensors;
    for (int64_t i = 0; i < cut; ++i) {
      at::Tensor& one = result[static_cast<size_t>(i)];
      one = one.narrow(2, first, std::min(tile, length() - first));
    }
    return result;
  }
};

struct RowTilesFunction : torch::autograd::Function<RowTilesFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::TensorList /*inputs*/, TiledWork state) {
    Tensors parts;
    for (int64_t first = 0; first < state.length(); first += state.tile)
      parts.push_back(state.at_rows(state.tile_at(first)));
    at::Tensor result = at::cat(parts, 2);
    Kept<TiledWork>::save(context, std::move(state));
    return result;
  }

  static variable_list backward(torch::autograd::AutogradContext* context, const variable_list& gradients) {
    const TiledWork state = Kept<TiledWork>::load(context);
    const size_t count = state.tensors.size();
    std::vector<Tensors> of_rows(count);  // gradients of the tiles of what is cut
    variable_list result(count + 1);      // nothing for the state
    std::vector<size_t> wanted;
    for (size_t i = 0; i < count; ++i)
      if (state.tensors[i].is_floating_point() && context->needs_input_grad(i)) wanted.push_back(i);
    for (int64_t first = 0; first < state.length(); first += state.tile) {
      Tensors tile = state.tile_at(first), leaves;
      for (at::Tensor& one : tile) one = one.detach();
      for (const size_t i : wanted) leaves.push_back(tile[i].requires_grad_(true));
      at::Tensor out;
      {
        const at::AutoGradMode with_gradients(true);
        out = state.at_rows(tile);
      }
      const Tensors found =
          torch::autograd::grad({out}, leaves, {gradients[0].narrow(2, first, out.size(2))}, std::nullopt,
                                /*create_graph=*/false, /*allow_unused=*/true);
      for (size_t j = 0; j < wanted.size(); ++j) {
        const size_t i = wanted[j];
        const at::Tensor one = found[j].defined() ? found[j] : at::zeros_like(leaves[j]);
        if (i < static_cast<size_t>(state.cut)) of_rows[i].push_back(one);
        else result[i] = result[i].defined() ? result[i] + one : one;
      }
    }
    for (size_t i = 0; i < count; ++i)
      if (!of_rows[i].empty()) result[i] = at::cat(of_rows[i], 2);
    return result;
  }
};

}  // namespace

int64_t tile_rows(int64_t row_elements) {
  return std::max<int64_t>(1, (int64_t{1} << 22) / std::max<int64_t>(1, row_elements));
}

at::Tensor in_row_tiles(const Tensors& rows, const Tensors& whole, int64_t tile, const RowTileWork& work) {
  TiledWork state{rows, static_cast<int64_t>(rows.size()), tile, work};
  if (state.length() <= tile) return work(rows, whole);
  state.tensors.insert(state.tensors.end(), whole.begin(), whole.end());
  const Tensors inputs = state.tensors;
  return RowTilesFunction::apply(at::TensorList(inputs), std::move(state));
}

}  // namespace xformer::kernels
