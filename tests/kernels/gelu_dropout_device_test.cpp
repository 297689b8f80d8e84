// Activation and dropout as a device computes them, walked on the CPU, against the definition in double precision.
#include "block_walk.h"
#include "fused_support.h"
#include "kernels/gelu_dropout/cpu.h"
#include "kernels/gelu_dropout/device.h"
#include "kernels/operator.h"
#include "place_support.h"
#include "plan_support.h"
#include "poisoned_memory.h"

namespace xformer::kernels::gelu_dropout_device_test {

namespace {

struct WalkedActivation {
  std::vector<int64_t> shape{7, 30};
  bool tanh = false;
  double p = 0.2;
  at::ScalarType type = at::kFloat;
  int64_t shift = 0;  // elements by which x begins behind an aligned place
};

at::Tensor shifted_like(const std::string& name, const WalkedActivation& one) {
  const int64_t size = c10::multiply_integers(one.shape);
  return (random_tensor(name, {size + one.shift}) * 2).to(one.type).narrow(0, one.shift, size).view(one.shape);
}

// The activation and the gradient of x.
Tensors walked_activation(const WalkedActivation& one, WalkOrder order) {
  const at::Tensor x = shifted_like("x", one), gradient = shifted_like("gradient", one);
  const auto launch = [&](const GeluDropoutArguments& a) {
    run_gelu<WalkedTypes>(a, [&](const LaunchGrid& grid, const auto& program) { walk(grid, program, order); });
  };
  return {gelu_dropout_device({}, x, one.tanh, place_of(one.p), launch),
          gelu_dropout_device(gradient, x, one.tanh, place_of(one.p), launch)};
}

double worst_activation(const WalkedActivation& one) {
  const at::Tensor x = shifted_like("x", one).to(at::kDouble).requires_grad_(true);
  const at::Tensor meant = gelu_dropout_reference(x, one.tanh, place_of(one.p));
  const at::Tensor slope = torch::autograd::grad({meant}, {x}, {shifted_like("gradient", one).to(at::kDouble)})[0];
  const Tensors got = walked_activation(one, WalkOrder::kForward), again = walked_activation(one, WalkOrder::kBackward);
  CHECK((at::equal(got[0], again[0]) && at::equal(got[1], again[1])));
  return std::max(difference(got[0].to(at::kDouble), meant.detach()), difference(got[1].to(at::kDouble), slope));
}

int counted_activations = 0;

at::Tensor counted_gelu_forward(const at::Tensor& x, bool tanh, const DropoutPlace& drop) {
  return gelu_dropout_device({}, x, tanh, drop, [](const GeluDropoutArguments&) { ++counted_activations; });
}

at::Tensor counted_gelu_backward(const at::Tensor& gradient, const at::Tensor& x, bool tanh, const DropoutPlace& drop) {
  return gelu_dropout_device(gradient, x, tanh, drop, [](const GeluDropoutArguments&) { ++counted_activations; });
}

}  // namespace

TEST_CASE("activation and dropout on a device: every length from 1 to 130, both forms, every type") {
  const PoisonedMemory poisoned;
  for (const bool tanh : {false, true}) {
    for (int64_t size = 1; size <= 130; ++size) {
      CAPTURE(size, tanh);
      CHECK(worst_activation({.shape = {size}, .tanh = tanh}) < 1e-6);
    }
    for (const int64_t shift : {0, 1, 3}) {
      CAPTURE(shift, tanh);
      CHECK(worst_activation({.shape = {30, 70, 3}, .tanh = tanh, .shift = shift}) < 1e-6);  // several blocks
      CHECK(worst_activation({.tanh = tanh, .p = 0, .shift = shift}) < 1e-6);
      CHECK(worst_activation({.tanh = tanh, .type = at::kDouble, .shift = shift}) < 1e-14);
      CHECK(worst_activation({.tanh = tanh, .type = at::kHalf, .shift = shift}) < 1.0 / 1024);
      CHECK(worst_activation({.tanh = tanh, .type = at::kBFloat16, .shift = shift}) < 1.0 / 128);
    }
  }
}

TEST_CASE("activation and dropout on a device drop the elements that the CPU drops, and stay finite far out") {
  const auto walked_forward = [](const at::Tensor& x, bool tanh, const DropoutPlace& place) {
    return gelu_dropout_device({}, x, tanh, place, [](const GeluDropoutArguments& a) {
      run_gelu<WalkedTypes>(
          a, [](const LaunchGrid& grid, const auto& program) { walk(grid, program, WalkOrder::kForward); });
    });
  };
  const at::Tensor ones = at::ones({9, 77}), here = gelu_dropout_forward_cpu(ones, false, place_of(0.2));
  CHECK(at::equal(walked_forward(ones, false, place_of(0.2)) == 0, here == 0));
  CHECK((here == 0).sum().item<int64_t>() > 0);
  for (const bool tanh : {false, true}) {
    const at::Tensor far = at::tensor({-1e30f, -200.0f, 200.0f, 1e12f});
    CHECK(at::equal(walked_forward(far, tanh, {}), at::relu(far)));
  }
}

TEST_CASE("a device with kernels of activation and dropout runs them, in 16 bits too") {
  counted_activations = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("gelu_dropout_forward", dispatched<counted_gelu_forward>);
  library.impl("gelu_dropout_backward", dispatched<counted_gelu_backward>);
  DropoutPlace place = place_of(0.1);
  place.state = place.state.to(at::kMeta);
  int runs = 0;
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const at::Tensor x = at::empty({4, 10, 64}, at::TensorOptions(at::kMeta).dtype(type)).requires_grad_(true);
    const at::Tensor out = gelu_dropout(x, true, place);
    CHECK(out.scalar_type() == type);
    CHECK(torch::autograd::grad({out}, {x}, {at::ones_like(out)})[0].scalar_type() == type);
    CHECK(counted_activations == 2 * ++runs);
  }
}

TEST_CASE("plans of activations fit a device at any size") {
  constexpr auto fits = [](int64_t elements) {
    return launch_fits<GeluDropoutProgram<double>>(gelu_grid(elements)) &&
           is_division(gelu_grid(elements).blocks, kGeluThreads * kRun, elements);
  };
  STATIC_REQUIRE((fits(1) && fits(2048) && fits(2049) && fits((int64_t{1} << 31) + 1) && fits(int64_t{1} << 41)));
}

}  // namespace xformer::kernels::gelu_dropout_device_test
