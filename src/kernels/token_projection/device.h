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
         x.numel() > 0 && x.size(3) <= kProjectedWidest;
}

// Operands as programs read them, which must outlive the launches, and what these are told.
struct ProjectionOperands {
  at::Tensor projection, x, y, valid;
  ProjectionArguments a;

  ProjectionOperands(const at::Tensor& projection_in, const at::Tensor& x_in, const at::Tensor& y_in,
                     const at::Tensor& key_valid)
      : projection(projection_in.contiguous()), x(readable_heads(x_in)), y(y_in), valid(readable_flags(key_valid)) {
    TORCH_CHECK(fits_projection_programs(projection, x),
                "project_tokens on a device takes a projection of floats and heads at most ", kProjectedWidest,
                " wide");
    TORCH_CHECK(!y.defined() || y.scalar_type() == x.scalar_type(), "project_tokens takes heads of one type");
    if (y.defined()) y = readable_heads(y);
    a.product = product_kind(), a.type = element_type(x);
    a.table = read_floats(projection);
    a.heads = projection.size(0), a.rows = projection.size(1), a.columns = projection.size(2);
    a.wide_table = a.columns % kRun == 0 && reads_wide({projection});
    a.b = x.size(0), a.h = x.size(1), a.n = x.size(2);
    a.d = static_cast<int>(x.size(3));
    a.sides[0] = {x.const_data_ptr(), head_places(x)};
    if (y.defined()) a.sides[a.count++] = {y.const_data_ptr(), head_places(y)};
    a.valid = valid_flags(valid, a.b, a.n);
  }

  template <class Launch>
  void run(ProjectionStage stage, const Launch& launch) {
    a.stage = stage;
    launch(a);
  }
};

// Launch takes ProjectionArguments.
template <class Launch>
at::Tensor project_forward_device(const at::Tensor& projection, const at::Tensor& x, const at::Tensor& y,
                                  const at::Tensor& key_valid, const Launch& launch) {
  ProjectionOperands operands(projection, x, y, key_valid);
  ProjectionArguments& a = operands.a;
  at::Tensor result = at::empty({a.b, a.h, a.rows, a.width()}, x.options());
  a.out = result.mutable_data_ptr();
  operands.run(ProjectionStage::kMixtures, launch);
  return result;
}

// The same, twice.
template <class Launch>
ProjectionGradients project_backward_device(const at::Tensor& gradient_in, const at::Tensor& projection,
                                            const at::Tensor& x, const at::Tensor& y, const at::Tensor& key_valid,
                                            const Launch& launch) {
  ProjectionOperands operands(projection, x, y, key_valid);
  ProjectionArguments& a = operands.a;
  const at::Tensor gradient = gradient_in.contiguous();
  // Gradients of x and y, each whole: what made these goes on from rows without gaps.
  const at::Tensor both = at::empty({a.count, a.b, a.n, a.h, a.d}, x.options());
  a.parts = table_parts(a.b, table_tiles(a.heads, a.rows, a.columns));
  const at::Tensor tables = at::empty({a.parts, a.heads, a.rows, a.columns}, projection.options());
  TORCH_CHECK(gradient.scalar_type() == x.scalar_type(), "a gradient of another type than its heads");
  a.gradient = gradient.const_data_ptr();
  a.wide_gradient = a.d % kRun == 0 && reads_wide({gradient});
  a.d_tokens = both.mutable_data_ptr(), a.d_tables = written_floats(tables);
  a.wide_table = a.wide_table && reads_wide({tables});
  operands.run(ProjectionStage::kTokenGradients, launch);
  operands.run(ProjectionStage::kTableGradient, launch);
  return {a.parts == 1 ? tables.select(0, 0) : tables.sum(0), both.select(0, 0).transpose(1, 2),
          y.defined() ? both.select(0, 1).transpose(1, 2) : at::Tensor()};
}

}  // namespace xformer::kernels
