// Residual and norm on the CPU: blocks of rows that stay in the first-level cache from the sum to the last gradient.
#include "kernels/residual_norm/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/units.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kBlockElements = 4096;
// Gradients of weight and bias are summed within each of so many parts of the rows, then over these.
constexpr int64_t kParts = 64;

struct Division {
  int64_t rows, width, part_rows, parts, block_rows;

  explicit Division(const at::Tensor& x)
      : rows(x.size(-1) > 0 ? x.numel() / x.size(-1) : 0),
        width(x.size(-1)),
        part_rows(std::max<int64_t>((rows + kParts - 1) / kParts, 1)),
        parts((rows + part_rows - 1) / part_rows),
        block_rows(std::max<int64_t>(kBlockElements / std::max<int64_t>(width, 1), 1)) {}

  // work(first row, rows, worker) for the blocks of each part, in order.
  template <class Work>
  void for_blocks(const Work& work) const {
    for_units(parts, 4 * part_rows * width, [&](int64_t part, int64_t worker) {
      const int64_t end = std::min(rows, (part + 1) * part_rows);
      for (int64_t row = part * part_rows; row < end; row += block_rows)
        work(part, row, std::min(block_rows, end - row), worker);
    });
  }
};

using Draws = std::vector<std::vector<uint16_t>>;

Draws draws_for(const Division& division) { return Draws(static_cast<size_t>(workers_for(division.parts))); }

}  // namespace

ResidualNormForward residual_norm_forward_cpu(const at::Tensor& x_in, const at::Tensor& branch_in,
                                              const DropoutPlace& drop, const NormWeights& norm) {
  const at::Tensor x = x_in.contiguous();
  const bool has_branch = branch_in.defined(), has_norm = norm.weight.defined();
  XF_ASSERT(!has_branch || x.sizes() == branch_in.sizes(), "x and its branch have different shapes");
  const at::Tensor branch = has_branch ? branch_in.contiguous() : branch_in;
  const Division division(x);
  XF_ASSERT(!has_norm || (norm.weight.numel() == division.width && norm.bias.numel() == division.width),
            "norm weights of {} and {} for rows of {}", norm.weight.numel(), norm.bias.numel(), division.width);
  ResidualNormForward result{has_branch ? at::empty_like(x) : x_in, {}, {}, {}};
  const at::Tensor sum = has_branch ? result.sum : x;
  at::Tensor weight, bias;
  if (has_norm) {
    result.normed = at::empty_like(x);
    result.mean = at::empty({division.rows}, x.options());
    result.rstd = at::empty({division.rows}, x.options());
    weight = norm.weight.contiguous(), bias = norm.bias.contiguous();
  }
  const ElementDraws draws(has_branch ? drop : DropoutPlace(), x);
  Draws memory = draws_for(division);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "residual_norm", [&] {
    division.for_blocks([&](int64_t /*part*/, int64_t row, int64_t rows, int64_t worker) {
      const int64_t first = row * division.width, count = rows * division.width;
      if (has_branch) {
        const uint16_t* const drawn = draws.draw(first, count, memory[static_cast<size_t>(worker)]);
        residual_rows(x.const_data_ptr<scalar_t>() + first, branch.const_data_ptr<scalar_t>() + first,
                      {drawn, draws.threshold(), draws.keep()}, count, sum.mutable_data_ptr<scalar_t>() + first);
      }
      if (has_norm)
        norm_rows(NormForwardRows<scalar_t>{
            rows, division.width, sum.const_data_ptr<scalar_t>() + first, weight.const_data_ptr<scalar_t>(),
            bias.const_data_ptr<scalar_t>(), static_cast<scalar_t>(norm.epsilon),
            result.normed.mutable_data_ptr<scalar_t>() + first, result.mean.mutable_data_ptr<scalar_t>() + row,
            result.rstd.mutable_data_ptr<scalar_t>() + row});
    });
  });
  return result;
}

ResidualNormGradients residual_norm_backward_cpu(const at::Tensor& sum_gradient_in,
                                                 const at::Tensor& normed_gradient_in,
                                                 const ResidualNormForward& forward, bool has_branch,
                                                 const DropoutPlace& drop, const at::Tensor& weight_in) {
  const at::Tensor sum = forward.sum.contiguous(), normed_gradient = normed_gradient_in.contiguous();
  const at::Tensor weight = weight_in.contiguous();
  const bool has_sum_gradient = sum_gradient_in.defined();
  const at::Tensor sum_gradient = has_sum_gradient ? sum_gradient_in.contiguous() : sum_gradient_in;
  const Division division(sum);
  ResidualNormGradients result;
  result.x = at::empty_like(sum);
  const ElementDraws draws(has_branch ? drop : DropoutPlace(), sum);
  const bool drops = draws.threshold() > 0;
  if (has_branch) result.branch = drops ? at::empty_like(sum) : result.x;
  const at::Tensor sums = at::zeros({division.parts, 2, division.width}, sum.options());
  Draws memory = draws_for(division);
  AT_DISPATCH_FLOATING_TYPES(sum.scalar_type(), "residual_norm_backward", [&] {
    division.for_blocks([&](int64_t part, int64_t row, int64_t rows, int64_t worker) {
      const int64_t first = row * division.width, count = rows * division.width;
      scalar_t* const x_gradient = result.x.mutable_data_ptr<scalar_t>() + first;
      scalar_t* const own = sums.mutable_data_ptr<scalar_t>() + part * 2 * division.width;
      norm_gradient_rows(NormBackwardRows<scalar_t>{
          rows, division.width, sum.const_data_ptr<scalar_t>() + first, forward.mean.const_data_ptr<scalar_t>() + row,
          forward.rstd.const_data_ptr<scalar_t>() + row, weight.const_data_ptr<scalar_t>(),
          normed_gradient.const_data_ptr<scalar_t>() + first,
          has_sum_gradient ? sum_gradient.const_data_ptr<scalar_t>() + first : nullptr, x_gradient, own,
          own + division.width});
      if (!drops) return;
      const uint16_t* const drawn = draws.draw(first, count, memory[static_cast<size_t>(worker)]);
      drop_rows(x_gradient, {drawn, draws.threshold(), draws.keep()}, count,
                result.branch.mutable_data_ptr<scalar_t>() + first);
    });
  });
  const at::Tensor total = sums.sum(0);  // [2, m]
  result.weight = total.select(0, 0);
  result.bias = total.select(0, 1);
  return result;
}

}  // namespace xformer::kernels
