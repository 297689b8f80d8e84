// The pseudo-inverse as a device computes it, walked on the CPU, against the definition in double precision.
#include "device_support.h"
#include "kernels/operator.h"
#include "kernels/pseudo_inverse/device.h"
#include "kernels/pseudo_inverse/pseudo_inverse.h"
#include "plan_support.h"
#include "poisoned_memory.h"
#include "tensor/op_counter.h"

namespace xformer::kernels::pseudo_inverse_device_test {

namespace {

struct WalkedInverse {
  int64_t m = 64, iterations = 2, b = 1, h = 1;
  bool masked = false;
  int64_t shift = 0;  // elements by which the matrices begin behind an aligned place

  [[nodiscard]] at::Tensor valid() const { return masked ? ragged_flags(b, m) : at::Tensor(); }
  // Rows that sum to one, as those of attention; near enough to the unit matrix to have an inverse.
  [[nodiscard]] at::Tensor matrix() const {
    const at::Tensor logits = random_tensor("a", {b, h, m, m}, at::kFloat) + 3 * at::eye(m, at::kFloat);
    return moved(at::softmax(logits, -1));
  }
  [[nodiscard]] at::Tensor gradient() const { return random_tensor("gradient", {b, h, m, m}, at::kFloat); }
  [[nodiscard]] at::Tensor moved(const at::Tensor& x) const {
    const at::Tensor room = at::empty({x.numel() + shift}, x.options());
    return room.narrow(0, shift, x.numel()).view(x.sizes()).copy_(x);
  }
};

// The inverse, and the gradient of the matrix.
Tensors inverted(const WalkedInverse& one, const at::Tensor& a, const at::Tensor& gradient, WalkOrder order) {
  const auto launch = [order](bool backward) {
    return [=](const PseudoInverseArguments& arguments) { run_pseudo_inverse(arguments, backward, walking(order)); };
  };
  const Inverse made = pseudo_inverse_forward_device(a, one.valid(), one.iterations, launch(false));
  return {made.result,
          pseudo_inverse_backward_device(gradient, a, made.kept, one.valid(), one.iterations, launch(true))};
}

Tensors meant(const WalkedInverse& one, const at::Tensor& a, const at::Tensor& gradient) {
  return in_double(
      [&](const Tensors& in) {
        return Tensors{pseudo_inverse_reference(in[0], {one.valid(), false}, one.iterations)};
      },
      {a}, {gradient});
}

double worst_inverse(const WalkedInverse& one, bool both_orders = true, WalkOrder first = WalkOrder::kForward) {
  const at::Tensor a = one.matrix(), gradient = one.gradient();
  return worst_walked([&](WalkOrder order) { return inverted(one, a, gradient, order); }, meant(one, a, gradient),
                      both_orders, first);
}

constexpr double kLikeFloat = 1e-5;

int counted_inverses = 0;

void count_inverse(const PseudoInverseArguments&) { ++counted_inverses; }

Inverse counted_forward(const at::Tensor& a, const at::Tensor& valid, int64_t iterations) {
  return pseudo_inverse_forward_device(a, valid, iterations, count_inverse);
}
at::Tensor counted_backward(const at::Tensor& gradient, const at::Tensor& a, const at::Tensor& kept,
                            const at::Tensor& valid, int64_t iterations) {
  return pseudo_inverse_backward_device(gradient, a, kept, valid, iterations, count_inverse);
}

}  // namespace

// A block computes all 64 by 64 numbers of any size, so that each costs the same: two iterations in two orders where
// warps' tiles end, of the others one in one.
TEST_CASE("pseudo-inverse on a device: every size up to the largest") {
  const PoisonedMemory poisoned;
  for (int64_t m = 1; m <= kMostLandmarks; ++m) {
    const bool near = (m + 1) % kTileRows < 3;
    CAPTURE(m);
    CHECK(worst_inverse({.m = m, .iterations = near ? 2 : 1}, near, order_at(m)) < kLikeFloat);
  }
  CHECK(worst_inverse({.m = 24, .iterations = 6}) < kLikeFloat);
  CHECK(worst_inverse({.m = 16, .shift = 1}) < kLikeFloat);
}

TEST_CASE("pseudo-inverse on a device: landmarks that are not valid, whatever stands there") {
  const PoisonedMemory poisoned;
  for (const int64_t m : {10, 64}) {
    const WalkedInverse one{.m = m, .b = 3, .masked = true};
    CHECK(worst_inverse(one) < kLikeFloat);
    const at::Tensor a = one.matrix(), gradient = one.gradient(), flags = one.valid();
    const auto lost = [&](const at::Tensor& x) {
      return lost_padding(lost_padding(x, flags).transpose(2, 3), flags).transpose(2, 3);
    };
    const Tensors clean = inverted(one, a, gradient, WalkOrder::kForward),
                  got = inverted(one, lost(a), lost(gradient), WalkOrder::kForward);
    for (size_t i = 0; i < clean.size(); ++i) CHECK(at::equal(clean[i], got[i]));
    // What is lost in valid places does not come to others.
    at::Tensor broken = a.clone();
    broken[1][0].fill_(NAN);
    const at::Tensor outside = flags[1].logical_not();
    for (const at::Tensor& x : inverted(one, broken, gradient, WalkOrder::kForward)) {
      CHECK(x[1][0].index({outside}).abs().sum().item<float>() == 0);
      CHECK(at::equal(x[0].isnan(), at::zeros_like(x[0], at::kBool)));
    }
  }
}

TEST_CASE("pseudo-inverse on a device: columns of equal sums share the largest's gradient, and zeros stay") {
  const PoisonedMemory poisoned;
  const WalkedInverse one{.m = 3, .iterations = 1};
  for (const at::Tensor& even : {at::full({1, 1, 3, 3}, 0.25, at::kFloat), at::zeros({1, 1, 3, 3}, at::kFloat)}) {
    const at::Tensor gradient = one.gradient();
    const Tensors got = inverted(one, even, gradient, WalkOrder::kForward), wanted = meant(one, even, gradient);
    for (size_t i = 0; i < got.size(); ++i) CHECK(difference(got[i].to(at::kDouble), wanted[i]) < kLikeFloat);
  }
}

// LibTorch's meta device has shapes and types but no memory: what is launched there is counted.
TEST_CASE("a device with kernels of the pseudo-inverse runs them: one launch each way") {
  counted_inverses = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("pseudo_inverse_forward", dispatched<counted_forward>);
  library.impl("pseudo_inverse_backward", dispatched<counted_backward>);
  const auto launches = [&](int64_t m, at::ScalarType type) {
    const at::Tensor a = at::empty({2, 3, m, m}, at::TensorOptions(at::kMeta).dtype(type)).requires_grad_(true);
    const OpCounter counter;
    const at::Tensor out = pseudo_inverse(a, {}, 6);
    const Tensors found = torch::autograd::grad({out}, {a}, {at::ones_like(out)});
    CHECK((out.sizes() == a.sizes() && found[0].sizes() == a.sizes()));
    if (counted_inverses > 0) CHECK(counter.counts().flops == 2 * 15 * 6 * 2 * 3 * m * m * m);
    return std::exchange(counted_inverses, 0);
  };
  CHECK(launches(64, at::kFloat) == 2);
  CHECK(launches(5, at::kFloat) == 2);
  CHECK(launches(kMostLandmarks + 1, at::kFloat) == 0);
  CHECK(launches(64, at::kDouble) == 0);
}

TEST_CASE("plans of the pseudo-inverse fit a device") {
  constexpr auto kKind = ProductKind::kFloat;
  constexpr auto fits = [](int64_t units) {
    return launch_fits<PseudoInverseForwardProgram<kKind>>(pseudo_inverse_grid(units, kForwardMatrices)) &&
           launch_fits<PseudoInverseBackwardProgram<kKind>>(pseudo_inverse_grid(units, kBackwardMatrices));
  };
  STATIC_REQUIRE((fits(1) && fits(1 << 30) && fits(kMostBlocks)));
  STATIC_REQUIRE(pseudo_inverse_grid(kMostBlocks + 1, kForwardMatrices).blocks == kMostBlocks + 1);  // refused
  // Two blocks at a time forwards.
  STATIC_REQUIRE(resident_blocks(kSm80, kInverseThreads, 1, pseudo_inverse_grid(1, kForwardMatrices).shared_bytes) ==
                 PseudoInverseForwardProgram<kKind>::kResident);
}

}  // namespace xformer::kernels::pseudo_inverse_device_test
