// The family cnn against its definition, written with plain tensor operations, and what it refuses.
#include <ATen/Functions.h>

#include <catch2/catch.hpp>
#include <map>

#include "core/error.h"
#include "models/model.h"

namespace xformer::models {

namespace {

ModelRequest request_for(int64_t places, int64_t width) {
  ModelRequest request;
  request.input = {places, 256};
  request.outputs = 3;
  request.attention = attention::resolve("none");
  request.model_options = {{"width", width}};
  request.seed = 5;
  return request;
}

// A 3x3 or 1x1 convolution as a product with unfolded windows.
at::Tensor convolved(const at::Tensor& x, const at::Tensor& weight, int64_t stride) {
  const int64_t k = weight.size(2), pad = k / 2, side = (x.size(2) + stride - 1) / stride;
  const at::Tensor columns = at::im2col(x, {k, k}, {1, 1}, {pad, pad}, {stride, stride});
  return at::matmul(weight.flatten(1), columns).view({x.size(0), weight.size(0), side, side});
}

// Mean and variance over each of four groups of channels, written out.
at::Tensor normed(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor groups = x.view({x.size(0), 4, -1});
  const at::Tensor centred = groups - groups.mean(2, true);
  const at::Tensor scaled = centred / (centred.square().mean(2, true) + 1e-5).sqrt();
  return scaled.view_as(x) * weight.view({1, -1, 1, 1}) + bias.view({1, -1, 1, 1});
}

}  // namespace

TEST_CASE("the CNN is its definition") {
  const FamilyDescriptor& family = all_families().get("cnn");
  for (const int64_t side : {8, 16, 64}) {
    CAPTURE(side);
    const ModelRequest request = request_for(side * side, 8);
    family.check(request);
    const auto model = family.build(request);
    model->to(at::kDouble);
    model->eval();
    std::map<std::string, at::Tensor> of;
    for (const auto& [name, tensor] : state(*model)) of[name] = tensor.detach();
    const ModelInput input{at::randint(0, 256, {2, side * side}, at::kLong), at::ones({2, side * side}, at::kBool)};
    at::Tensor x = input.tokens.to(at::kDouble).view({2, 1, side, side}) / 127.5 - 1;
    x = convolved(x, of.at("stem"), side > 32 ? 2 : 1);
    const auto norm = [&](const std::string& name, const at::Tensor& y) {
      return at::relu(normed(y, of.at(name + "_weight"), of.at(name + "_bias")));
    };
    int64_t stages = 0;
    for (; of.contains(fmt::format("stage{}_block0_first", stages)); ++stages)
      for (int block = 0; block < 2; ++block) {
        const std::string name = fmt::format("stage{}_block{}_", stages, block);
        const int64_t stride = stages > 0 && block == 0 ? 2 : 1;
        const at::Tensor inner = norm(name + "first_norm", x);
        const at::Tensor middle = convolved(inner, of.at(name + "first"), stride);
        const at::Tensor branch = convolved(norm(name + "second_norm", middle), of.at(name + "second"), 1);
        x = branch + (of.contains(name + "shortcut") ? convolved(inner, of.at(name + "shortcut"), stride) : x);
      }
    CHECK(stages == (side == 8 ? 1 : side == 16 ? 2 : 3));
    CHECK(x.size(2) == 8);
    x = norm("last_norm", x).mean(std::vector<int64_t>{2, 3});
    const at::Tensor meant = at::linear(x, of.at("classifier_out.weight"), of.at("classifier_out.bias"));
    CHECK((model->forward(input) - meant).abs().max().item<double>() < 1e-10);
  }
}

TEST_CASE("the CNN's cost is the products that its convolutions do") {
  const FamilyDescriptor& family = all_families().get("cnn");
  const auto model = family.build(request_for(256, 8));
  // 16 x 16: stem; two blocks of 8 channels; then one of 8 to 16 at half the side with its shortcut, and one of 16.
  const double first = 256 * 9 * (1 * 8 + 4 * 8 * 8), second = 64 * (9 * (8 * 16 + 3 * 16 * 16) + 8 * 16);
  CHECK(model->cost(5, 256).flops_executed == 5 * 2 * (first + second + 16 * 3));
}

TEST_CASE("the CNN takes square grey images alone") {
  const FamilyDescriptor& family = all_families().get("cnn");
  const auto refused = [&](const ModelRequest& request) {
    try {
      family.check(request);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  CHECK(refused(request_for(1024, 32)) == "accepted");
  CHECK_THAT(refused(request_for(1000, 32)), Catch::Matchers::Contains("square grey images"));
  CHECK_THAT(refused(request_for(1024, 30)), Catch::Matchers::Contains("multiple of 4"));
  ModelRequest numbers = request_for(1024, 32);
  numbers.input = {1024, 0, 1, 3};
  CHECK_THAT(refused(numbers), Catch::Matchers::Contains("square grey images"));
}

}  // namespace xformer::models
