// The passes of token_projection.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the
// programs. The signatures are those of the operator's kernels for the CPU.
#pragma once

#include "kernels/device/head_tensors.h"
#include "kernels/token_projection/program.h"

namespace xformer::kernels {

struct ProjectionGradients {
  at::Tensor projection, x, y;
};

// Whether a device's programs take such a projection and tokens.
[[nodiscard]] inline bool fits_projection_programs(const at::Tensor& projection, const at::Tensor& x) {
  return projection.scalar_type() == at::kFloat && x.scalar_type() != at::kDouble && projection.numel() > 0 &&
         x.numel() > 0 && x.size(3) <= kProjectedWidest && numbered_by_ints({projection, x});
}

// Operands as programs read them and the tiles made of them, which must outlive the launches, and what these are told.
class ProjectionOperands {
 public:
  ProjectionArguments a;

  // The sides' gradients are none forwards.
  ProjectionOperands(const at::Tensor& projection, const at::Tensor& x, const at::Tensor& y,
                     const at::Tensor& key_valid, at::TensorList gradients)
      : projection_(projection.contiguous()), x_(readable_heads(x)), y_(y), valid_(readable_flags(key_valid)) {
    TORCH_CHECK(fits_projection_programs(projection_, x_),
                "project_tokens on a device takes a projection of floats and heads at most ", kProjectedWidest,
                " wide");
    if (y.defined()) y_ = readable_heads(y);
    a.product = product_kind(), a.type = element_type(x);
    a.heads = projection.size(0), a.rows = projection.size(1), a.columns = projection.size(2);
    a.count = y.defined() ? 2 : 1;
    a.b = x.size(0), a.h = x.size(1), a.n = x.size(2);
    a.d = static_cast<int>(x.size(3));
    a.valid = valid_flags(valid_, a.b, a.n);
    a.wide_table = a.columns % kRun == 0 && reads_wide({projection_});
    HeadPlaces table;
    table.row = a.columns, table.wide = a.wide_table, table.sample = a.rows * a.columns, table.head = kTileSide;
    a.table = {.from = {projection_.const_data_ptr(), false},
               .places = table,
               .samples = a.heads,
               .heads = tiles_of(a.columns),
               .rows = a.rows,
               .width = kTileSide,
               .columns = a.columns,
               .strip = kTileSide};
    const auto side = [&](const at::Tensor& heads, const bool* valid) {
      TORCH_CHECK(heads.scalar_type() == x.scalar_type(), "project_tokens takes heads and gradients of one type");
      return TileSource{.from = {heads.const_data_ptr(), a.type != ElementType::kFloat},
                        .places = head_places(heads),
                        .valid = valid,
                        .samples = a.b,
                        .heads = a.h,
                        .rows = heads.size(2),
                        .width = a.side_width(),
                        .columns = a.d};
    };
    a.sides[0] = side(x_, a.valid);
    if (y.defined()) a.sides[1] = side(y_, a.valid);
    std::vector<TileSource*> sources{&a.table, &a.sides[0], &a.sides[1]};
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      gradients_[i] = readable_heads(gradients[i]);
      a.gradients[i] = side(gradients_[i], nullptr);
      sources.push_back(&a.gradients[i]);
    }
    int64_t bytes = 0, count = 0;
    for (const TileSource* source : sources) bytes += source->bytes(a.terms()), count += source->count();
    tiles_ = at::empty({bytes}, projection.options().dtype(at::kByte));
    inverses_ = at::empty({count}, projection.options());
    bytes = count = 0;
    for (TileSource* source : sources) {
      source->tiles = static_cast<char*>(tiles_.mutable_data_ptr()) + bytes;
      source->inverses = written_floats(inverses_) + count;
      bytes += source->bytes(a.terms()), count += source->count();
    }
  }

  template <class Launch>
  void run(ProjectionStage stage, const Launch& launch) {
    a.stage = stage;
    launch(a);
  }

 private:
  at::Tensor projection_, x_, y_, valid_, gradients_[2], tiles_, inverses_;
};

// Launch takes ProjectionArguments, and is called twice.
template <class Launch>
at::Tensor project_forward_device(const at::Tensor& projection, const at::Tensor& x, const at::Tensor& y,
                                  const at::Tensor& key_valid, const Launch& launch) {
  ProjectionOperands operands(projection, x, y, key_valid, {});
  ProjectionArguments& a = operands.a;
  at::Tensor result = at::empty({a.b, a.h, a.rows, a.width()}, x.options());
  a.out = result.mutable_data_ptr();
  operands.run(ProjectionStage::kPlanes, launch);
  operands.run(ProjectionStage::kMixtures, launch);
  return result;
}

// The same.
template <class Launch>
ProjectionGradients project_backward_device(const at::Tensor& x_gradient, const at::Tensor& y_gradient,
                                            const at::Tensor& projection, const at::Tensor& x, const at::Tensor& y,
                                            const at::Tensor& key_valid, const Launch& launch) {
  ProjectionOperands operands(projection, x, y, key_valid, {x_gradient, y_gradient});
  ProjectionArguments& a = operands.a;
  // Gradients of x and y, each whole: what made these goes on from rows without gaps.
  const at::Tensor both = at::empty({a.count, a.b, a.n, a.h, a.d}, x.options());
  a.parts = table_parts(a.b, table_tiles(a.heads, a.rows, a.columns));
  const at::Tensor tables = at::empty({a.parts, a.heads, a.rows, a.columns}, projection.options());
  a.d_tokens = both.mutable_data_ptr(), a.d_tables = written_floats(tables);
  a.wide_table = a.wide_table && reads_wide({tables});
  operands.run(ProjectionStage::kPlanes, launch);
  operands.run(ProjectionStage::kGradients, launch);
  return {a.parts == 1 ? tables.select(0, 0) : tables.sum(0), both.select(0, 0).transpose(1, 2),
          y.defined() ? both.select(0, 1).transpose(1, 2) : at::Tensor()};
}

}  // namespace xformer::kernels
