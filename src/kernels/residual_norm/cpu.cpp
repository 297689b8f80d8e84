// Residual and norm on the CPU: blocks of rows that stay in the first-level cache from the sum to the last gradient.
#include "kernels/residual_norm/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/part_tables.h"
#include "kernels/cpu/units.h"
#include "kernels/residual_norm/blocks.h"

namespace xformer::kernels {

namespace {

// Gradients of weight and bias are summed within each of so many parts of the rows, then over these.
constexpr int64_t kParts = 64;

struct Division {
  int64_t rows, width, part_rows, parts, block_rows;

  explicit Division(const at::Tensor& x)
      : rows(x.size(-1) > 0 ? x.numel() / x.size(-1) : 0),
        width(x.size(-1)),
        part_rows(std::max<int64_t>((rows + kParts - 1) / kParts, 1)),
        parts((rows + part_rows - 1) / part_rows),
        block_rows(norm_rows_at_once(x.scalar_type(), width)) {}

  // work(part, first row, rows, worker) for the blocks of each part, in order.
  template <class Work>
  void for_blocks(const Work& work) const {
    for_units(parts, 4 * part_rows * width, [&](int64_t part, int64_t worker) {
      const int64_t end = std::min(rows, (part + 1) * part_rows);
      for (int64_t row = part * part_rows; row < end; row += block_rows)
        work(part, row, std::min(block_rows, end - row), worker);
    });
  }
};

}  // namespace

ResidualNormForward residual_norm_forward_cpu(const at::Tensor& x_in, const at::Tensor& branch_in,
                                              const DropoutPlace& drop, const NormWeights& norm,
                                              const at::Tensor& needed) {
  const bool has_branch = branch_in.defined();
  XF_ASSERT(!has_branch || x_in.sizes() == branch_in.sizes(), "x and its branch have different shapes");
  const NormPass pass(DrawnBy::kForward, x_in, has_branch, drop, norm, needed);
  const at::Tensor branch = has_branch ? branch_in.contiguous() : branch_in;
  const Division division(pass.x);
  ResidualNormForward result{has_branch ? at::empty_like(pass.x) : x_in, {}, {}, {}};
  if (norm.weight.defined()) {
    result.normed = at::empty_like(pass.x);
    result.mean = at::empty({division.rows}, computed_options(pass.x));
    result.rstd = at::empty_like(result.mean);
  }
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, pass.x.scalar_type(), "residual_norm", [&] {
    NormForward<scalar_t> forward(pass, has_branch, result, workers_for(division.parts));
    const auto* const branch_rows = read_from<scalar_t>(branch);
    division.for_blocks([&](int64_t /*part*/, int64_t row, int64_t rows, int64_t worker) {
      forward.rows(row, rows, worker, has_branch ? branch_rows + row * division.width : nullptr);
    });
  });
  return result;
}

ResidualNormGradients residual_norm_backward_cpu(const at::Tensor& sum_gradient_in,
                                                 const at::Tensor& normed_gradient_in,
                                                 const ResidualNormForward& forward, bool has_branch,
                                                 const DropoutPlace& drop, const at::Tensor& weight,
                                                 const at::Tensor& needed) {
  const NormPass pass(DrawnBy::kBackward, forward.sum, has_branch, drop, {weight, {}}, needed);
  const at::Tensor normed_gradient = normed_gradient_in.contiguous(),
                   sum_gradient = sum_gradient_in.defined() ? sum_gradient_in.contiguous() : sum_gradient_in;
  const Division division(pass.x);
  ResidualNormGradients result;
  result.x = at::empty_like(pass.x);
  const bool drops = pass.draws.threshold() > 0;
  if (has_branch) result.branch = drops ? at::empty_like(pass.x) : result.x;
  const at::Tensor sums = at::zeros({division.parts, 2, division.width}, computed_options(pass.x));
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, pass.x.scalar_type(), "residual_norm_backward", [&] {
    NormBackward<scalar_t> backward(pass, has_branch, sum_gradient, normed_gradient, forward, result.x,
                                    workers_for(division.parts));
    auto* const branch_to = drops ? result.branch.mutable_data_ptr<scalar_t>() : nullptr;
    auto* const tables = sums.mutable_data_ptr<Computed<scalar_t>>();
    division.for_blocks([&](int64_t part, int64_t row, int64_t rows, int64_t worker) {
      backward.rows(row, rows, worker, drops ? branch_to + row * division.width : nullptr,
                    tables + part * 2 * division.width);
    });
  });
  const at::Tensor total = sum_of_tables(sums);  // [2, m]
  result.weight = total.select(0, 0);
  result.bias = total.select(0, 1);
  return result;
}

}  // namespace xformer::kernels
