// Residual and norm of some rows on the CPU, forwards and backwards: what residual_norm_forward_cpu() and a branch that
// is added while it is in the cache (kernels/branch) have in common.
#pragma once

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/lanes_512.h"
#include "kernels/cpu/needed_rows.h"
#include "kernels/cpu/stored.h"
#include "kernels/residual_norm/cpu.h"

namespace xformer::kernels {

// Rows that residual and norm take at once stay in the first-level cache from the sum to the last gradient: so many
// elements, or fewer of what is converted outside registers, in rooms of its own beside it, which share the cache.
[[nodiscard]] inline int64_t norm_rows_at_once(at::ScalarType type, int64_t width) {
  constexpr int64_t kElements = 4096, kConvertedElements = 1024;
  const bool converted = type == at::kBFloat16 && !has_bf16_512();
  return std::max<int64_t>((converted ? kConvertedElements : kElements) / std::max<int64_t>(width, 1), 1);
}

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

// The norm of x alone where mean and rstd are there already.
template <class Stored>
void norm_block_again(const BlockForward<Stored>& block, NormScratch<Stored>& mine) {
  using Value = Computed<Stored>;
  if constexpr (kConverts<Stored>)
    if (has_bf16_512()) return by_512::norm_block_again(block);
  const int64_t count = block.rows * block.width;
  Value* const into = place_for(block.normed, count, mine.normed);
  norm_rows_again(NormForwardRows<Value>{block.rows, block.width, loaded(block.x, count, mine.x), block.weight,
                                         block.bias, block.epsilon, into, block.mean, block.rstd});
  store(into, count, block.normed);
}

template <class Stored>
void norm_gradient_block(const BlockBackward<Stored>& block, NormScratch<Stored>& mine) {
  using Value = Computed<Stored>;
  if constexpr (kConverts<Stored>)
    if (has_bf16_512()) return by_512::norm_gradient_block(block, mine.sum);
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

// to = drop(from), rounded.
template <class Stored>
void drop_stored(const Stored* from, const DropRule& drop, int64_t count, Stored* to, NormScratch<Stored>& mine) {
  if constexpr (kConverts<Stored>)
    if (has_bf16_512()) return by_512::drop_rows(from, drop, count, to);
  Computed<Stored>* const into = place_for(to, count, mine.branch);
  drop_rows(loaded(from, count, mine.x), drop, count, into);
  store(into, count, to);
}

// What both passes have of a residual with its norm, contiguous.
struct NormPass {
  at::Tensor x;             // backwards the sum
  at::Tensor weight, bias;  // undefined: there is no norm
  double epsilon;
  NeededRows needed;
  ElementDraws draws;
  int64_t width, rows;

  NormPass(DrawnBy pass, const at::Tensor& x_in, bool has_branch, const DropoutPlace& drop, const NormWeights& norm,
           const at::Tensor& needed_rows)
      : x(x_in.contiguous()),
        weight(norm.weight.defined() ? norm.weight.contiguous() : norm.weight),
        bias(norm.bias.defined() ? norm.bias.contiguous() : norm.bias),
        epsilon(norm.epsilon),
        needed(needed_rows, x.size(-1) > 0 ? x.numel() / x.size(-1) : 0),
        draws(has_branch ? drop : DropoutPlace(), x, pass),
        width(x.size(-1)),
        rows(width > 0 ? x.numel() / width : 0) {
    XF_ASSERT(!weight.defined() || weight.numel() == width, "norm weights of {} for rows of {}", weight.numel(), width);
    XF_ASSERT(!bias.defined() || bias.numel() == width, "norm biases of {} for rows of {}", bias.numel(), width);
  }

  [[nodiscard]] DropRule rule(int64_t row, int64_t count, std::vector<uint16_t>& memory) const {
    return {draws.draw(row * width, count * width, memory), draws.threshold(), draws.keep()};
  }
};

// work(row, rows) for as many of rows first .. first + count - 1 as residual and norm take at once.
template <class Work>
void for_pieces(const NormPass& norm, int64_t first, int64_t count, const Work& work) {
  const int64_t at_once = norm_rows_at_once(norm.x.scalar_type(), norm.width);
  for (int64_t row = first; row < first + count; row += at_once) work(row, std::min(at_once, first + count - row));
}

template <class Stored>
class NormForward {
  using Value = Computed<Stored>;

 public:
  // The sum is written where there is a branch, the rest where there is a norm.
  NormForward(const NormPass& pass, bool has_branch, const ResidualNormForward& to, int64_t workers)
      : pass_(pass),
        scratch_(static_cast<size_t>(workers)),
        x_(pass.x.const_data_ptr<Stored>()),
        weight_(read_from<Value>(pass.weight)),
        bias_(read_from<Value>(pass.bias)),
        sum_(has_branch ? to.sum.mutable_data_ptr<Stored>() : nullptr),
        normed_(write_to<Stored>(to.normed)),
        mean_(write_to<Value>(to.mean)),
        rstd_(write_to<Value>(to.rstd)) {}

  // Rows `row` .. row + count - 1, of which the branch is `branch` [count, width], or nullptr.
  void rows(int64_t row, int64_t count, int64_t worker, const Stored* branch) {
    const int64_t width = pass_.width, first = row * width;
    NormScratch<Stored>& mine = scratch_[static_cast<size_t>(worker)];
    const Needed which = pass_.needed.of(row, count);
    Stored *const sum = sum_ == nullptr ? nullptr : sum_ + first, *const normed =
                                                                      normed_ == nullptr ? nullptr : normed_ + first;
    if (which != Needed::kNone)
      norm_block(
          BlockForward<Stored>{count, width, x_ + first, branch, pass_.rule(row, count, mine.draws), sum, weight_,
                               bias_, static_cast<Value>(pass_.epsilon), normed, mean_ + row, rstd_ + row},
          mine);
    if (which == Needed::kAll) return;
    if (sum != nullptr) pass_.needed.clear(row, count, width, sum);
    if (normed == nullptr) return;
    pass_.needed.clear(row, count, width, normed);
    pass_.needed.clear(row, count, 1, mean_ + row);
    pass_.needed.clear(row, count, 1, rstd_ + row);
  }

 private:
  const NormPass& pass_;
  std::vector<NormScratch<Stored>> scratch_;
  const Stored* x_;
  const Value *weight_, *bias_;
  Stored *sum_, *normed_;
  Value *mean_, *rstd_;
};

template <class Stored>
class NormBackward {
  using Value = Computed<Stored>;

 public:
  // Both gradients contiguous, that of the sum perhaps undefined; `x_gradient` as the sum.
  NormBackward(const NormPass& pass, bool has_branch, const at::Tensor& sum_gradient, const at::Tensor& normed_gradient,
               const ResidualNormForward& forward, const at::Tensor& x_gradient, int64_t workers)
      : pass_(pass),
        has_branch_(has_branch),
        scratch_(static_cast<size_t>(workers)),
        sum_(pass.x.const_data_ptr<Stored>()),
        normed_slopes_(normed_gradient.const_data_ptr<Stored>()),
        sum_slopes_(read_from<Stored>(sum_gradient)),
        mean_(forward.mean.const_data_ptr<Value>()),
        rstd_(forward.rstd.const_data_ptr<Value>()),
        weight_(pass.weight.const_data_ptr<Value>()),
        x_gradient_(x_gradient.mutable_data_ptr<Stored>()) {}

  // The branch's gradient to `branch` [count, width], or nullptr where it is that of x, or nobody wants it; those of
  // weight and bias are added to `own` [2, width].
  void rows(int64_t row, int64_t count, int64_t worker, Stored* branch, Value* own) {
    const int64_t width = pass_.width, first = row * width;
    NormScratch<Stored>& mine = scratch_[static_cast<size_t>(worker)];
    const Needed which = pass_.needed.of(row, count);
    Stored* const to = x_gradient_ + first;
    if (which == Needed::kNone) {
      if (!has_branch_ && sum_slopes_ != nullptr) std::copy_n(sum_slopes_ + first, count * width, to);
      else pass_.needed.clear(row, count, width, to);
      if (branch != nullptr) pass_.needed.clear(row, count, width, branch);
      return;
    }
    const auto needed_of = [&](const Stored* from, std::vector<Stored>& room, bool all = false) {
      return pass_.needed.only(all ? Needed::kAll : which, row, count, width, from + first, room);
    };
    norm_gradient_block(
        BlockBackward<Stored>{
            count, width, needed_of(sum_, mine.sum_needed), mean_ + row, rstd_ + row, weight_,
            needed_of(normed_slopes_, mine.normed_needed),
            sum_slopes_ == nullptr ? nullptr : needed_of(sum_slopes_, mine.x_needed, /*all=*/!has_branch_),
            branch == nullptr ? DropRule{nullptr, pass_.draws.threshold(), pass_.draws.keep()}
                              : pass_.rule(row, count, mine.draws),
            to, branch, own, own + width},
        mine);
  }

 private:
  const NormPass& pass_;
  bool has_branch_;
  std::vector<NormScratch<Stored>> scratch_;
  const Stored *sum_, *normed_slopes_, *sum_slopes_;
  const Value *mean_, *rstd_, *weight_;
  Stored* x_gradient_;
};

}  // namespace xformer::kernels
