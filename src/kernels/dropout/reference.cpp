// Dropout from plain tensor operations, on any device: the meaning of the operator and of its gradient.
#include <ATen/Functions.h>
#include <ATen/OpMathType.h>

#include <array>

#include "kernels/dropout/dropout.h"
#include "kernels/dropout/numbers.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kLow = 0xFFFFFFFF;

// The halves of a 32 x 32 bit product, from 16-bit halves of the factor: nothing passes 2^49.
struct Product {
  at::Tensor high, low;  // 32 bits each, in int64
};

Product product(const at::Tensor& word, int64_t factor) {
  const at::Tensor upper = word * (factor >> 16), lower = word * (factor & 0xFFFF);
  const at::Tensor high = (upper + lower.bitwise_right_shift(16)).bitwise_right_shift(16);
  const at::Tensor low = (upper.bitwise_and(0xFFFF).bitwise_left_shift(16) + lower).bitwise_and(kLow);
  return {high, low};
}

// The lower or the upper 32 bits of an int64.
at::Tensor low_word(const at::Tensor& value) { return value.bitwise_and(kLow); }
at::Tensor high_word(const at::Tensor& value) { return value.bitwise_right_shift(32).bitwise_and(kLow); }

// The four words of Philox 4x32-10 at (low, high) under key; the arguments are int64 and broadcast.
std::array<at::Tensor, 4> philox_words(const at::Tensor& key, const at::Tensor& low, const at::Tensor& high) {
  std::array<at::Tensor, 4> c = {low_word(low), high_word(low), low_word(high), high_word(high)};
  at::Tensor k0 = low_word(key), k1 = high_word(key);
  for (int round = 0; round < 10; ++round) {
    const Product p0 = product(c[0], 0xD2511F53), p1 = product(c[2], 0xCD9E8D57);
    c = {p1.high.bitwise_xor(c[1]).bitwise_xor(k0), p1.low, p0.high.bitwise_xor(c[3]).bitwise_xor(k1), p0.low};
    k0 = (k0 + 0x9E3779B9).bitwise_and(kLow);
    k1 = (k1 + int64_t{0xBB67AE85}).bitwise_and(kLow);
  }
  return c;
}

}  // namespace

at::Tensor dropout_reference(const at::Tensor& x, double p, const at::Tensor& state, int64_t site) {
  const uint32_t threshold = dropout_threshold(p);
  if (threshold == 0 || x.numel() == 0) return x;
  const at::Tensor key = state.select(0, 0), step = state.select(0, 1), first_row = state.select(0, 2);
  const at::Tensor element = at::arange(x.numel(), state.options()) + first_row * (x.numel() / x.size(0));
  const at::Tensor high = step.bitwise_or(static_cast<int64_t>(dropout_counter_high(0, site)));
  const at::Tensor block = element.bitwise_right_shift(3);  // element / kElementsPerBlock
  const std::array<at::Tensor, 4> words = philox_words(key, block, high);

  const at::Tensor lane = element.bitwise_and(kElementsPerBlock - 1);
  at::Tensor word = at::zeros_like(element);
  for (int64_t i = 0; i < 4; ++i)
    word = at::where(lane.bitwise_right_shift(1) == i, words[static_cast<size_t>(i)], word);
  const at::Tensor draw = at::where(lane.bitwise_and(1) == 1, word.bitwise_right_shift(16), word.bitwise_and(0xFFFF));
  const at::Tensor dropped = (draw < static_cast<int64_t>(threshold)).view(x.sizes());

  // In the type that arithmetic uses for x, rounded once; a selection, so that what is dropped is 0 even
  // where x is not finite.
  const at::ScalarType math = at::toOpMathType(x.scalar_type());
  return (x.to(math) * dropout_scale(threshold)).to(x.scalar_type()).masked_fill(dropped, 0);
}

}  // namespace xformer::kernels
