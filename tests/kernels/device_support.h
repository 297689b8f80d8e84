// What tests of operators on a device share: masks, tensors with strides, and launches that are walked.
#pragma once

#include "block_walk.h"
#include "core/random.h"
#include "fused_support.h"

namespace xformer::kernels {

// Which of n tokens are valid: those of the first sample whole, of the second a prefix with holes, of the third none.
inline at::Tensor ragged_flags(int64_t b, int64_t n) {
  Stream numbers(static_cast<uint64_t>(31 * b + n));
  at::Tensor flags = at::ones({b, n}, at::kBool);
  for (int64_t row = 1; row < b; ++row) {
    const int64_t length = row % 3 == 2 ? 0 : static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(n + 1)));
    for (int64_t i = 0; i < n; ++i) flags[row][i] = i < length && numbers.next_below(4) > 0;
  }
  return flags;
}

// Lengths about which something may change, which tests take in full where every length is too much.
inline bool near_border(int64_t n) { return n < 10 || (n > 60 && n < 68) || n > 126; }
// The order of a length that is walked in one alone: both take turns, of eight, so that each comes with whatever takes
// turns beside.
inline WalkOrder order_at(int64_t n) { return n / 8 % 2 == 0 ? WalkOrder::kForward : WalkOrder::kBackward; }

// [b,h,n,d] as a projection leaves it; `gaps`: with the last axis not the fastest.
inline at::Tensor float_heads(const std::string& name, at::IntArrayRef shape, bool gaps = false) {
  const at::Tensor dense = random_tensor(name, {shape[0], shape[2], shape[1], shape[3]}, at::kFloat).transpose(1, 2);
  return gaps ? dense.transpose(2, 3).contiguous().transpose(2, 3) : dense;
}

// NaN where the flags [b,n] are false, in the rows of [b,h,n,d] or of [b,n,d].
inline at::Tensor lost_padding(const at::Tensor& x, const at::Tensor& flags) {
  const at::Tensor rows = x.dim() == 4 ? flags.unsqueeze(1) : flags;
  return x.masked_fill(rows.logical_not().unsqueeze(-1), NAN);
}

// Which of so many rows, more than three tiles, somebody needs: all, none, those before an end in a tile and at its
// border, those of the last tile, and some with holes, of single rows, half a tile and a whole one.
inline Tensors needed_cases(int64_t rows) {
  const at::Tensor place = at::arange(rows), all = at::ones({rows}, at::kBool);
  at::Tensor holes = random_tensor("needed", {rows}).gt(-0.5);
  holes.slice(0, 32, 64).fill_(false), holes.slice(0, 128, 192).fill_(false);
  // The last are flags that do not lie side by side.
  return {all,
          all.logical_not(),
          place.lt(70),
          place.lt(64),
          place.ge(rows / 64 * 64),
          holes.clone(),
          at::stack({holes, holes.logical_not()}, 1).select(1, 0)};
}

// NaN in rows of x, where it lies, that are not needed (undefined: all are).
inline void lose_others(const at::Tensor& x, const at::Tensor& needed) {
  if (needed.defined() && x.defined()) x.masked_fill_(needed.logical_not().unsqueeze(-1), NAN);
}

// products(rows, needed) of a walked operator on tiles of 64 rows, of which gradients of weights take 32 at a time: of
// tiles, and of such halves, without a needed row there are none.
inline void check_products_of_tiles(const std::function<int64_t(int64_t rows, const at::Tensor& needed)>& products) {
  const int64_t tile = products(64, {}), half = products(32, {});
  CHECK((half > 0 && tile > half));
  const at::Tensor place = at::arange(256);
  CHECK(products(256, {}) == 4 * tile);
  CHECK(products(256, at::ones({256}, at::kBool)) == 4 * tile);
  CHECK(products(256, place.lt(0)) == 0);
  CHECK(products(256, place.lt(64)) == tile);
  CHECK(products(256, place.eq(70)) == half);
  CHECK(products(256, place.lt(65)) == tile + half);
}

// A thread whose products are counted.
class CountedThread : public WalkedThread {
 public:
  CountedThread(BlockWalk& walk, int index, int64_t& products) : WalkedThread(walk, index), products_(products) {}
  void mma(float* c, const uint32_t* a, const uint32_t* b) const {
    ++products_;
    WalkedThread::mma(c, a, b);
  }

 private:
  int64_t& products_;
};
// launch(grid, program) on the CPU, which adds the threads' products.
inline auto counting(int64_t& products) {
  return [&products](const LaunchGrid& grid, const auto& program) {
    BlockWalk blocks(grid, program.kThreads, WalkOrder::kForward);
    blocks.run([&](int index) { program(CountedThread(blocks, index, products)); });
  };
}

// launch(grid, program) on the CPU.
inline auto walking(WalkOrder order) {
  return [order](const LaunchGrid& grid, const auto& program) { walk(grid, program, order); };
}

// The largest difference of what was walked from what is meant in double precision.
inline double worst_from(const Tensors& got, const Tensors& meant) {
  REQUIRE(got.size() == meant.size());
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, difference(got[i].to(at::kDouble), meant[i]));
  return worst;
}

// That of a walk in the order `first`, or of one in both, which must give the same bits.
template <class Walk>
double worst_walked(const Walk& walked, const Tensors& meant, bool both_orders = true,
                    WalkOrder first = WalkOrder::kForward) {
  const Tensors got = walked(first);
  if (both_orders) {
    const Tensors again = walked(first == WalkOrder::kForward ? WalkOrder::kBackward : WalkOrder::kForward);
    for (size_t i = 0; i < got.size(); ++i) CHECK(at::equal(got[i], again[i]));
  }
  return worst_from(got, meant);
}

// Outputs of a definition in double precision and its gradients, for these gradients of the outputs.
inline Tensors in_double(const TensorFunction& definition, const Tensors& inputs, const Tensors& gradients) {
  Tensors leaves, slopes;
  for (const at::Tensor& one : inputs) leaves.push_back(one.to(at::kDouble).detach().requires_grad_(true));
  for (const at::Tensor& one : gradients) slopes.push_back(one.to(at::kDouble));
  Tensors result = definition(leaves);
  const Tensors found = torch::autograd::grad(result, leaves, slopes);
  for (at::Tensor& one : result) one = one.detach();
  result.insert(result.end(), found.begin(), found.end());
  return result;
}

}  // namespace xformer::kernels
