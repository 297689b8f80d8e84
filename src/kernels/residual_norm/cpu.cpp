// Residual and norm on the CPU: blocks of rows that stay in the first-level cache from the sum to the last gradient.
#include "kernels/residual_norm/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/lanes_512.h"
#include "kernels/cpu/needed_rows.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"

namespace xformer::kernels {

namespace {

// Of a block: what is converted outside registers lies in rooms of its own beside it, which share the cache.
constexpr int64_t kBlockElements = 4096, kConvertedElements = 1024;
// Gradients of weight and bias are summed within each of so many parts of the rows, then over these.
constexpr int64_t kParts = 64;

struct Division {
  int64_t rows, width, part_rows, parts, block_rows;

  explicit Division(const at::Tensor& x)
      : rows(x.size(-1) > 0 ? x.numel() / x.size(-1) : 0),
        width(x.size(-1)),
        part_rows(std::max<int64_t>((rows + kParts - 1) / kParts, 1)),
        parts((rows + part_rows - 1) / part_rows),
        block_rows(std::max<int64_t>(
            (x.scalar_type() == at::kBFloat16 && !has_bf16_512() ? kConvertedElements : kBlockElements) /
                std::max<int64_t>(width, 1),
            1)) {}

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

// Where a tensor lies; nullptr: nowhere.
template <class Value>
const Value* read_from(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<Value>() : nullptr;
}
template <class Value>
Value* write_to(const at::Tensor& x) {
  return x.defined() ? x.mutable_data_ptr<Value>() : nullptr;
}

// What a worker computes in.
template <class Stored>
struct NormScratch {
  std::vector<uint16_t> draws;
  std::vector<Stored> x_needed, sum_needed, normed_needed;  // rows of which some are needed
  std::vector<Computed<Stored>> x, sum, normed, branch, x_gradient;

  static std::vector<NormScratch> of(const Division& division) {
    return std::vector<NormScratch>(static_cast<size_t>(workers_for(division.parts)));
  }
};

template <class Stored>
void norm_block(const BlockForward<Stored>& block, NormScratch<Stored>& mine) {
  using Value = Computed<Stored>;
  if constexpr (kConverts<Stored>)
    if (has_bf16_512()) return by_512::norm_block(block, mine.sum);
  const int64_t count = block.rows * block.width;
  const Value* total = loaded(block.x, count, mine.x);
  if (block.branch != nullptr) {
    Value* const into = place_for(block.sum, count, mine.sum);
    residual_rows(total, loaded(block.branch, count, mine.branch), block.drop, count, into);
    store(into, count, block.sum);
    total = into;
  }
  if (block.normed == nullptr) return;
  Value* const into = place_for(block.normed, count, mine.normed);
  norm_rows(NormForwardRows<Value>{block.rows, block.width, total, block.weight, block.bias, block.epsilon, into,
                                   block.mean, block.rstd});
  store(into, count, block.normed);
}

template <class Stored>
void norm_gradient_block(const BlockBackward<Stored>& block, NormScratch<Stored>& mine) {
  using Value = Computed<Stored>;
  if constexpr (kConverts<Stored>)
    if (has_bf16_512()) return by_512::norm_gradient_block(block);
  const int64_t count = block.rows * block.width;
  Value* const x_gradient = place_for(block.x_gradient, count, mine.x_gradient);
  norm_gradient_rows(
      NormBackwardRows<Value>{block.rows, block.width, loaded(block.sum, count, mine.sum), block.mean, block.rstd,
                              block.weight, loaded(block.normed_gradient, count, mine.normed),
                              block.sum_gradient == nullptr ? nullptr : loaded(block.sum_gradient, count, mine.x),
                              x_gradient, block.weight_gradient, block.bias_gradient});
  store(x_gradient, count, block.x_gradient);
  if (block.branch_gradient == nullptr) return;
  Value* const branch_gradient = place_for(block.branch_gradient, count, mine.branch);
  drop_rows(x_gradient, block.drop, count, branch_gradient);
  store(branch_gradient, count, block.branch_gradient);
}

}  // namespace

ResidualNormForward residual_norm_forward_cpu(const at::Tensor& x_in, const at::Tensor& branch_in,
                                              const DropoutPlace& drop, const NormWeights& norm,
                                              const at::Tensor& needed) {
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
    result.mean = at::empty({division.rows}, computed_options(x));
    result.rstd = at::empty({division.rows}, computed_options(x));
    weight = norm.weight.contiguous(), bias = norm.bias.contiguous();
  }
  const NeededRows needed_rows(needed, division.rows);
  const ElementDraws draws(has_branch ? drop : DropoutPlace(), x);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "residual_norm", [&] {
    using Value = Computed<scalar_t>;
    auto scratch = NormScratch<scalar_t>::of(division);
    const auto *const x_rows = x.const_data_ptr<scalar_t>(), *const branch_rows = read_from<scalar_t>(branch);
    const auto *const weights = read_from<Value>(weight), *const biases = read_from<Value>(bias);
    auto *const sums = has_branch ? sum.mutable_data_ptr<scalar_t>() : nullptr, *const normed_rows =
                                                                                    write_to<scalar_t>(result.normed);
    auto *const means = write_to<Value>(result.mean), *const rstds = write_to<Value>(result.rstd);
    division.for_blocks([&](int64_t /*part*/, int64_t row, int64_t rows, int64_t worker) {
      NormScratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
      const int64_t first = row * division.width, count = rows * division.width;
      const Needed which = needed_rows.of(row, rows);
      scalar_t *const sum_to = has_branch ? sums + first : nullptr, *const normed_to =
                                                                        has_norm ? normed_rows + first : nullptr;
      const auto clear_others = [&] {
        if (has_branch) needed_rows.clear(row, rows, division.width, sum_to);
        if (!has_norm) return;
        needed_rows.clear(row, rows, division.width, normed_to);
        needed_rows.clear(row, rows, 1, means + row);
        needed_rows.clear(row, rows, 1, rstds + row);
      };
      if (which == Needed::kNone) return clear_others();
      norm_block(BlockForward<scalar_t>{rows,
                                        division.width,
                                        x_rows + first,
                                        has_branch ? branch_rows + first : nullptr,
                                        {draws.draw(first, count, mine.draws), draws.threshold(), draws.keep()},
                                        sum_to,
                                        weights,
                                        biases,
                                        static_cast<Value>(norm.epsilon),
                                        normed_to,
                                        means + row,
                                        rstds + row},
                 mine);
      if (which == Needed::kSome) clear_others();
    });
  });
  return result;
}

ResidualNormGradients residual_norm_backward_cpu(const at::Tensor& sum_gradient_in,
                                                 const at::Tensor& normed_gradient_in,
                                                 const ResidualNormForward& forward, bool has_branch,
                                                 const DropoutPlace& drop, const at::Tensor& weight_in,
                                                 const at::Tensor& needed) {
  const at::Tensor sum = forward.sum.contiguous(), normed_gradient = normed_gradient_in.contiguous();
  const at::Tensor weight = weight_in.contiguous();
  const bool has_sum_gradient = sum_gradient_in.defined();
  const at::Tensor sum_gradient = has_sum_gradient ? sum_gradient_in.contiguous() : sum_gradient_in;
  const Division division(sum);
  ResidualNormGradients result;
  result.x = at::empty_like(sum);
  const ElementDraws draws(has_branch ? drop : DropoutPlace(), sum);
  const NeededRows needed_rows(needed, division.rows);
  const bool drops = draws.threshold() > 0;
  if (has_branch) result.branch = drops ? at::empty_like(sum) : result.x;
  const at::Tensor sums = at::zeros({division.parts, 2, division.width}, computed_options(sum));
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, sum.scalar_type(), "residual_norm_backward", [&] {
    using Value = Computed<scalar_t>;
    auto scratch = NormScratch<scalar_t>::of(division);
    const auto *const sum_rows = sum.const_data_ptr<scalar_t>(),
                      *const normed_rows = normed_gradient.const_data_ptr<scalar_t>(),
                      *const sum_slopes = read_from<scalar_t>(sum_gradient);
    const auto *const means = forward.mean.const_data_ptr<Value>(), *const rstds = forward.rstd.const_data_ptr<Value>(),
                      *const weights = weight.const_data_ptr<Value>();
    auto *const x_to = result.x.mutable_data_ptr<scalar_t>(), *const branches_to =
                                                                  drops ? result.branch.mutable_data_ptr<scalar_t>()
                                                                        : nullptr;
    auto* const tables = sums.mutable_data_ptr<Value>();
    division.for_blocks([&](int64_t part, int64_t row, int64_t rows, int64_t worker) {
      NormScratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
      const int64_t first = row * division.width, count = rows * division.width;
      const Needed which = needed_rows.of(row, rows);
      scalar_t *const to = x_to + first, *const branch_to = drops ? branches_to + first : nullptr;
      if (which == Needed::kNone) {
        if (!has_branch && has_sum_gradient) std::copy_n(sum_slopes + first, count, to);
        else needed_rows.clear(row, rows, division.width, to);
        if (drops) needed_rows.clear(row, rows, division.width, branch_to);
        return;
      }
      const auto block_of = [&](const scalar_t* from, std::vector<scalar_t>& room, bool all = false) {
        return needed_rows.only(all ? Needed::kAll : which, row, rows, division.width, from + first, room);
      };
      Value* const own = tables + part * 2 * division.width;
      norm_gradient_block(
          BlockBackward<scalar_t>{
              rows,
              division.width,
              block_of(sum_rows, mine.sum_needed),
              means + row,
              rstds + row,
              weights,
              block_of(normed_rows, mine.normed_needed),
              has_sum_gradient ? block_of(sum_slopes, mine.x_needed, /*all=*/!has_branch) : nullptr,
              {drops ? draws.draw(first, count, mine.draws) : nullptr, draws.threshold(), draws.keep()},
              to,
              branch_to,
              own,
              own + division.width},
          mine);
    });
  });
  const at::Tensor total = sums.sum(0);  // [2, m]
  result.weight = total.select(0, 0);
  result.bias = total.select(0, 1);
  return result;
}

}  // namespace xformer::kernels
