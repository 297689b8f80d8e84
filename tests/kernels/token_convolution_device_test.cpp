// The convolution along the sequence as a device computes it, walked on the CPU, against the definition in double
// precision.
#include "device_support.h"
#include "kernels/operator.h"
#include "kernels/token_convolution/device.h"
#include "kernels/token_convolution/token_convolution.h"
#include "plan_support.h"
#include "poisoned_memory.h"
#include "tensor/op_counter.h"

namespace xformer::kernels::token_convolution_device_test {

namespace {

struct WalkedConvolution {
  int64_t n = 70, d = 16, taps = 5, b = 3, h = 2;
  bool masked = true, gaps = false;

  [[nodiscard]] at::Tensor valid() const { return masked ? ragged_flags(b, n) : at::Tensor(); }
  // base, x and w, then the gradient of the result.
  [[nodiscard]] Tensors operands() const {
    Tensors result;
    for (const std::string name : {"base", "x", "gradient"})
      result.push_back(float_heads(name, {b, h, n, d}, gaps && name != "base"));
    result.insert(result.begin() + 2, random_tensor("w", {h, taps}, at::kFloat));
    return result;
  }
};

// The result, then gradients of base, x and w.
Tensors convolved(const WalkedConvolution& one, const Tensors& given, WalkOrder order) {
  const auto launch = [order](const ConvolutionArguments& a) { run_convolution(a, walking(order)); };
  const at::Tensor out = convolve_forward_device(given[0], given[1], given[2], one.valid(), launch);
  const ConvolutionGradients found = convolve_backward_device(given[3], given[1], given[2], one.valid(), launch);
  return {out, found.base, found.x, found.w};
}

double worst_convolution(const WalkedConvolution& one) {
  const Tensors given = one.operands();
  return worst_walked([&](WalkOrder order) { return convolved(one, given, order); },
                      in_double(
                          [&](const Tensors& in) {
                            return Tensors{convolve_tokens_reference(in[0], in[1], in[2], {one.valid(), false})};
                          },
                          {given[0], given[1], given[2]}, {given[3]}));
}

constexpr double kLikeFloat = 2e-6;

int counted_convolutions = 0;

void count_convolution(const ConvolutionArguments&) { ++counted_convolutions; }

at::Tensor counted_forward(const at::Tensor& base, const at::Tensor& x, const at::Tensor& w, const at::Tensor& valid) {
  return convolve_forward_device(base, x, w, valid, count_convolution);
}
ConvolutionGradients counted_backward(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& w,
                                      const at::Tensor& valid) {
  return convolve_backward_device(gradient, x, w, valid, count_convolution);
}

}  // namespace

TEST_CASE("convolution on a device: every length from 1 to 130") {
  const PoisonedMemory poisoned;
  for (int64_t n = 1; n <= 130; ++n) {
    CAPTURE(n);
    CHECK(worst_convolution({.n = n, .d = 8, .taps = 1 + 2 * (n % 6), .b = 2, .masked = n % 3 > 0}) < kLikeFloat);
  }
}

TEST_CASE("convolution on a device: kernels, widths and strides") {
  const PoisonedMemory poisoned;
  for (const int64_t taps : {1, 3, 33, 35, 37, 73, 255}) {
    CAPTURE(taps);
    CHECK(worst_convolution({.taps = taps}) < kLikeFloat);
  }
  for (const int64_t d : {1, 4, 7, 31, 32, 33, 40, 70}) {
    CAPTURE(d);
    CHECK(worst_convolution({.d = d, .taps = 11}) < kLikeFloat);
  }
  CHECK(worst_convolution({.masked = false, .gaps = true}) < kLikeFloat);
  CHECK(worst_convolution({.n = 200, .d = 32, .taps = 35, .masked = false}) < kLikeFloat);
}

TEST_CASE("convolution on a device: several tiles in a part") {
  const PoisonedMemory poisoned;
  const WalkedConvolution one{.n = 270, .d = 4, .taps = 9, .b = 20, .h = 6};
  CHECK((kernel_division(one.b * one.h, one.n).parts == 2 && kernel_division(one.b * one.h, one.n).part_tiles == 3));
  const Tensors given = one.operands(), got = convolved(one, given, WalkOrder::kForward);
  const Tensors meant = in_double(
      [&](const Tensors& in) {
        return Tensors{convolve_tokens_reference(in[0], in[1], in[2], {one.valid(), false})};
      },
      {given[0], given[1], given[2]}, {given[3]});
  for (size_t i = 0; i < got.size(); ++i) CHECK(difference(got[i].to(at::kDouble), meant[i]) < kLikeFloat);
}

TEST_CASE("convolution on a device: what stands in padding does not matter") {
  const PoisonedMemory poisoned;
  const WalkedConvolution one{.n = 100, .taps = 35};
  Tensors given = one.operands();
  const Tensors clean = convolved(one, given, WalkOrder::kForward);
  for (const size_t i : {0, 1, 3}) given[i] = lost_padding(given[i], one.valid());
  const Tensors lost = convolved(one, given, WalkOrder::kForward);
  for (size_t i = 0; i < clean.size(); ++i) CHECK(at::equal(lost[i], clean[i]));
}

// LibTorch's meta device has shapes and types but no memory: what is launched there is counted.
TEST_CASE("a device with kernels of the convolution runs them: one launch forwards, two backwards") {
  counted_convolutions = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("convolve_tokens_forward", dispatched<counted_forward>);
  library.impl("convolve_tokens_backward", dispatched<counted_backward>);
  const auto launches = [&](int64_t taps, at::ScalarType type) {
    const auto leaf = [&](at::IntArrayRef shape) {
      return at::empty(shape, at::TensorOptions(at::kMeta).dtype(type)).requires_grad_(true);
    };
    const Tensors inputs{leaf({2, 3, 50, 8}), leaf({2, 3, 50, 8}), leaf({3, taps})};
    const OpCounter counter;
    const at::Tensor out = convolve_tokens(inputs[0], inputs[1], inputs[2], {});
    const Tensors found = torch::autograd::grad({out}, inputs, {at::ones_like(out)});
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].sizes() == inputs[i].sizes());
    if (counted_convolutions > 0) CHECK(counter.counts().flops == 6 * 2 * 3 * 50 * 8 * taps);
    return std::exchange(counted_convolutions, 0);
  };
  CHECK(launches(35, at::kFloat) == 3);
  CHECK(launches(kMostTaps, at::kFloat) == 3);
  // The definition there misses the gradient of LibTorch's unfold.
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(launches(kMostTaps + 2, at::kFloat), Contains("aten::unfold_backward"));
  CHECK_THROWS_WITH(launches(35, at::kDouble), Contains("aten::unfold_backward"));
  CHECK(counted_convolutions == 0);
}

TEST_CASE("plans of the convolution fit a device at any size") {
  constexpr auto fits = [](int64_t heads, int64_t n, int64_t d) {
    const RowDivision division = kernel_division(heads, n);
    const LaunchGrid rows = convolution_grid(heads, n, d, kMostTaps), taps = kernel_gradient_grid(heads, n);
    return launch_fits<ConvolutionProgram>(rows) && launch_fits<KernelGradientProgram>(taps) &&
           is_division(column_chunks(d), kConvolvedColumns, d) && taps.shared_bytes <= 48 * 1024 &&
           is_division(division.parts, division.part_tiles, tiles_of(n));
  };
  STATIC_REQUIRE(all_fit({1, 32, 512, kMostNumbered}, fits));
  STATIC_REQUIRE(convolution_grid(1, 1, 32, 35).shared_bytes <= 24 * 1024);
  const auto taken = [](int64_t n, int64_t d) {
    return fits_convolution_programs(at::empty({1, 1, n, d}, at::kMeta), at::empty({1, 3}, at::kMeta));
  };
  CHECK((taken(kMostNumbered, 1) && taken(1, kMostNumbered)));
  CHECK_FALSE((taken(kMostNumbered + 1, 1) || taken(1, kMostNumbered + 1)));
}

}  // namespace xformer::kernels::token_convolution_device_test
