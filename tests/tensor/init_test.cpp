// Initial values: functions of seed and name alone, with the moments they promise.
#include "tensor/init.h"

#include <ATen/Functions.h>

#include <catch2/catch.hpp>
#include <cmath>

namespace xformer::init_test {

// Mean and deviation of n draws with deviation `deviation` about 0, within 5 sigma.
void check_moments(const at::Tensor& x, double deviation, double kurtosis) {
  const at::Tensor values = x.to(at::kDouble);
  const auto n = static_cast<double>(x.numel());
  CHECK(std::abs(values.mean().item<double>()) < 5 * deviation / std::sqrt(n));
  const double relative = values.square().mean().item<double>() / (deviation * deviation);
  CHECK(std::abs(relative - 1) < 5 * std::sqrt((kurtosis - 1) / n));
}

TEST_CASE("values depend on seed and name only") {
  const InitStream init(3);
  const at::Tensor value = init.child("layer0").normal("weight", {8, 5}, 1);
  // Whatever is drawn before or after, and however the name is composed.
  const InitStream other(3);
  (void)other.uniform("first", {100}, 0, 1);
  (void)other.child("layer1").normal("weight", {8, 5}, 1);
  CHECK(at::equal(other.child("layer0").normal("weight", {8, 5}, 1), value));
  CHECK(at::equal(InitStream(3, "init/layer0").normal("weight", {8, 5}, 1), value));
  CHECK(at::equal(init.normal("layer0/weight", {8, 5}, 1), value));

  CHECK_FALSE(at::equal(InitStream(4).child("layer0").normal("weight", {8, 5}, 1), value));
  CHECK_FALSE(at::equal(init.child("layer1").normal("weight", {8, 5}, 1), value));
  CHECK_FALSE(at::equal(init.child("layer0").normal("bias", {8, 5}, 1), value));
  CHECK(value.scalar_type() == at::kFloat);
  CHECK(value.sizes() == at::IntArrayRef({8, 5}));
}

TEST_CASE("a longer tensor starts with the shorter one's numbers, and scale is only scale") {
  const InitStream init(9);
  const at::Tensor longer = init.normal("x", {1000}, 1);
  CHECK(at::equal(init.normal("x", {10}, 1), longer.narrow(0, 0, 10)));
  CHECK(at::allclose(init.normal("x", {1000}, 0.5), longer * 0.5));
}

TEST_CASE("uniform values fill their range") {
  const at::Tensor x = InitStream(1).uniform("x", {100000}, -0.25, 0.25);
  CHECK(x.min().item<float>() >= -0.25F);
  CHECK(x.max().item<float>() <= 0.25F);
  CHECK(x.max().item<float>() > 0.2499F);
  check_moments(x, 0.25 / std::sqrt(3), 1.8);
}

TEST_CASE("normal values have the moments of a normal") {
  const at::Tensor x = InitStream(2).normal("x", {400, 500}, 0.02);
  check_moments(x, 0.02, 3);
  const at::Tensor standard = x.to(at::kDouble) / 0.02;
  const auto n = static_cast<double>(x.numel());
  CHECK(std::abs(standard.pow(3).mean().item<double>()) < 5 * std::sqrt(15 / n));
  CHECK(std::abs(standard.pow(4).mean().item<double>() - 3) < 5 * std::sqrt(96 / n));
  // The share beyond two deviations is 0.0455.
  CHECK(std::abs((standard.abs() > 2).to(at::kDouble).mean().item<double>() - 0.0455003) < 5 * std::sqrt(0.0434 / n));
}

TEST_CASE("truncated normal values stay within their cut and keep the variance") {
  const at::Tensor x = InitStream(2).truncated_normal("x", {200000}, 0.1);
  CHECK(x.abs().max().item<double>() <= 0.2 / 0.8796256 + 1e-6);
  CHECK(x.abs().max().item<double>() > 0.2 / 0.8796256 * 0.999);
  check_moments(x, 0.1, 2.37);
}

TEST_CASE("rows of a weight are unrelated") {
  const at::Tensor x = InitStream(5).normal("x", {50, 2000}, 1).to(at::kDouble);
  const at::Tensor correlation = at::mm(x, x.t()) / 2000;
  CHECK((correlation - at::eye(50, at::kDouble)).abs().max().item<double>() < 6 * std::sqrt(2.0 / 2000));
}

TEST_CASE("streams for other purposes are functions of seed and name too") {
  const InitStream init(5);
  Stream a = init.stream("order"), same = init.stream("order"), other = init.stream("orders");
  const uint64_t value = a.next_u64();
  CHECK(value == same.next_u64());
  CHECK(value != other.next_u64());
  Stream numbers = init.stream("x");
  const at::Tensor x = init.normal("x", {2}, 1);
  CHECK(static_cast<float>(next_normal(numbers)) == x[0].item<float>());
}

}  // namespace xformer::init_test
