// The Vision Transformer against its equations, DeiT's counts and its rules.
#include <ATen/Functions.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "core/error.h"
#include "models/family_model.h"

namespace xformer::models::vit_test {

using namespace family_model;

namespace {

constexpr int64_t kPatch = 4, kGrid = 4, kWidth = 3 * kPatch * kPatch;

ModelRequest small(const std::string& attention, const Json& more = Json::object(),
                   const Json& attention_options = {}) {
  Json options{{"dim", 16}, {"heads", 4}, {"head_dim", 4}, {"layers", 3}, {"ff_dim", 24}};
  options.update(more);
  ModelRequest request = request_for("vit", attention, {kGrid * kGrid, 0, 1, kWidth, {}}, 10, options);
  if (!attention_options.is_null()) request.attention_options.update(attention_options);
  return request;
}

// Images [b, 3, side, side] as places of patches, [colour][row][column] in each.
ModelInput patches_of(const at::Tensor& images) {
  const at::Tensor values = at::im2col(images, {kPatch, kPatch}, {1, 1}, {0, 0}, {kPatch, kPatch}).transpose(1, 2);
  return {{}, at::ones({images.size(0), kGrid * kGrid}, at::kBool), values.contiguous()};
}

at::Tensor images() { return at::randn({2, 3, kPatch * kGrid, kPatch * kGrid}); }

}  // namespace

TEST_CASE("DeiT-tiny and MrsFormer's four heads have DeiT-tiny's parameters and products") {
  for (const int64_t heads : {3, 4}) {
    const ModelRequest request =
        request_for("vit", "softmax", {196, 0, 1, 768, {}}, 1000, {{"heads", heads}, {"head_dim", 192 / heads}});
    const auto model = build("vit", request);
    CHECK(parameter_count(*model) == 5'717'416);
    // 2 x (12 blocks of 197 (12 x 192^2) + 2 x 197^2 x 192, the patches' map, the classes' map).
    const double blocks = 12.0 * (197.0 * 12 * 192 * 192 + 2.0 * 197 * 197 * 192),
                 rest = 196.0 * 768 * 192 + 192.0 * 1000;
    CHECK(model->cost(1, 196).flops_executed == 2 * (blocks + rest));
    CHECK(model->cost(1, 196).flops_executed == Approx(2 * 1.2537e9).epsilon(1e-4));
  }
}

TEST_CASE("the model is convolution, CLS, positions, pre-norm blocks and a map of CLS") {
  const auto model = build("vit", small("softmax"));
  const Tensors w(*model);
  const at::Tensor picture = images();
  const at::Tensor kernel = w("input.weight").view({16, 3, kPatch, kPatch});
  const at::Tensor patches =
      at::conv2d(picture, kernel, w("input.bias"), at::IntArrayRef{kPatch, kPatch}).flatten(2).transpose(1, 2);
  at::Tensor x = at::cat({w("cls").expand({2, 1, 16}), patches}, 1) + w("positions");
  const auto norm = [&](const std::string& name, const at::Tensor& of) {
    return at::layer_norm(of, {16}, w(name + ".weight"), w(name + ".bias"), 1e-6);
  };
  for (int i = 0; i < 3; ++i) {
    const std::string layer = "layer" + std::to_string(i) + ".";
    const at::Tensor normed = norm(layer + "mixer_norm", x);
    const auto heads = [&](const char* name) {
      return w.map(layer + "mixer." + name, normed).view({2, 17, 4, 4}).transpose(1, 2);
    };
    const at::Tensor weights = (at::matmul(heads("query"), heads("key").transpose(2, 3)) / 2).softmax(-1);
    x = x + w.map(layer + "mixer.out", at::matmul(weights, heads("value")).transpose(1, 2).flatten(2));
    x = x + w.map(layer + "ff.out", at::gelu(w.map(layer + "ff.in", norm(layer + "ff_norm", x))));
  }
  const at::Tensor expected = w.map("classifier_out", norm("norm", x).select(1, 0));
  CHECK(apart(model->forward(patches_of(picture)), expected) < 1e-5);
}

TEST_CASE("multi-resolution heads with scales of one are DeiT") {
  const ModelInput input = patches_of(images());
  const at::Tensor plain = build("vit", small("softmax"))->forward(input);
  CHECK(build("vit", small("mrs-softmax", Json::object(), {{"scales", {1, 1, 1, 1}}}))->forward(input).equal(plain));
  CHECK_FALSE(
      build("vit", small("mrs-softmax", Json::object(), {{"scales", {1, 2, 2, 4}}}))->forward(input).equal(plain));
}

TEST_CASE("a head of scale 4 sees patches through the means of groups of four, CLS as it is") {
  const auto model = build("vit", small("mrs-softmax", {{"layers", 1}}, {{"scales", {4, 4, 4, 4}}}));
  // One block and no positions: what CLS becomes depends on the normed patches' means alone.
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : state(*model))
    if (name == "positions") at::Tensor(tensor).zero_();
  const ModelInput input = patches_of(images());
  const at::Tensor before = model->forward(input);
  ModelInput permuted = input;
  at::Tensor order = at::arange(16);
  order[4] = 7, order[7] = 4;  // within a group
  permuted.values = input.values.index_select(1, order);
  CHECK(apart(model->forward(permuted), before) < 1e-6);
  order[4] = 4, order[7] = 8, order[8] = 7;  // from one group to the next
  permuted.values = input.values.index_select(1, order);
  CHECK(apart(model->forward(permuted), before) > 1e-5);
}

TEST_CASE("initial values are DeiT's: N(0, 0.02) but for the patches' map, no biases") {
  const auto model = build("vit", request_for("vit", "softmax", {16, 0, 1, 192, {}}, 100, Json::object()));
  const Tensors w(*model);
  for (const char* name :
       {"layer3.mixer.query.weight", "layer0.ff.in.weight", "classifier_out.weight", "positions", "cls"})
    CHECK(w(name).std().item<double>() == Approx(0.02).epsilon(0.15));
  CHECK(w("layer3.mixer.query.bias").abs().max().item<float>() == 0);
  CHECK(w("input.weight").abs().max().item<float>() == Approx(1 / std::sqrt(192.0)).epsilon(1e-2));
}

TEST_CASE("weight decay leaves out vectors, positions and CLS") {
  const auto model = build("vit", small("softmax"));
  for (const auto& [name, tensor] : trainable(*model)) {
    CAPTURE(name);
    CHECK(model->decays(name) == (tensor.dim() == 2 && name != "positions"));
  }
  CHECK(model->decays("layer0.mixer.query.weight"));
}

TEST_CASE("stochastic depth leaves branches out in training, by example, and keeps their mean") {
  const auto model = build("vit", small("softmax", {{"layers", 2}, {"stochastic_depth", 0.5}}));
  const auto always = build("vit", small("softmax", {{"layers", 2}, {"stochastic_depth", 0.0}}));
  const ModelInput one = patches_of(images().narrow(0, 0, 1).contiguous());
  CHECK(model->forward(one).equal(always->forward(one)));
  ModelInput many{{}, one.key_valid.expand({64, -1}).contiguous(), one.values.expand({64, -1, -1}).contiguous()};
  model->train();
  const at::NoGradGuard no_grad;
  model->dropout_stream()->set_step(0);
  const at::Tensor rows = model->forward(many);
  std::set<float> kinds;
  for (int64_t i = 0; i < 64; ++i) kinds.insert(rows[i][0].item<float>());
  CHECK(kinds.size() == 4);  // either branch of the second block, there or not
  model->dropout_stream()->set_step(1);
  CHECK_FALSE(model->forward(many).equal(rows));
}

TEST_CASE("any attention runs in it, and what is no image is refused") {
  const ModelInput input = patches_of(images());
  for (const std::string& name : attention::all_names()) {
    CAPTURE(name);
    ModelRequest request = small(name);
    if (request.attention.base->build_block) {
      CHECK_THROWS_AS(build("vit", request), UserError);
      request = small(name, {{"stochastic_depth", 0.0}});
    }
    CHECK(build("vit", request)->forward(input).isfinite().all().item<bool>());
  }
  CHECK_THROWS_AS(build("vit", request_for("vit", "softmax", {16, 20, 1, 0, {}}, 2, Json::object())), UserError);
}

}  // namespace xformer::models::vit_test
