// BigBird's Task 1 (Zaheer et al. 2020, section 3.4 and Proposition 1): one layer of full attention gives at every
// place the vector furthest from its own, with weights set by hand; a window cannot before its layers reach that
// vector.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <catch2/catch.hpp>

#include "models/family_model.h"

namespace xformer::models::furthest_vector_test {

using namespace family_model;

namespace {

constexpr int64_t kPlaces = 64, kWidth = 4, kRows = 8, kModel = 4 * kWidth, kWindow = 8;

at::Tensor unit_vectors() {  // [b,n,d]
  Stream numbers(9);
  at::Tensor values = at::empty({kRows, kPlaces, kWidth}, at::kDouble);
  for (int64_t i = 0; i < values.numel(); ++i) values.data_ptr<double>()[i] = 2 * numbers.next_unit() - 1;
  return values / values.norm(2, -1, /*keepdim=*/true);
}

ModelInput input_of(const at::Tensor& values) { return {{}, at::ones({kRows, kPlaces}, at::kBool), values}; }

// By distance, [b,n].
at::Tensor furthest(const at::Tensor& values) {
  return (values.unsqueeze(2) - values.unsqueeze(1)).square().sum(-1).argmax(-1);
}
// Of predicted vectors the places of the nearest of the sequence, [b,n].
at::Tensor nearest(const at::Tensor& predicted, const at::Tensor& values) {
  return (predicted.unsqueeze(2) - values.unsqueeze(1)).square().sum(-1).argmin(-1);
}

std::shared_ptr<Model> encoder_of(const std::string& attention, int64_t layers = 1) {
  ModelRequest request = request_for("token-encoder", attention, {.max_tokens = kPlaces, .width = kWidth}, kWidth,
                                     {{"dim", kModel},
                                      {"heads", 1},
                                      {"head_dim", kWidth},
                                      {"layers", layers},
                                      {"ff_dim", 8},
                                      {"positions", "none"},
                                      {"tied", false},
                                      {"norm_epsilon", 1e-12}});
  if (attention == "local-window") request.attention_options["window"] = {kWindow};
  auto model = build("token-encoder", request);
  model->to(at::kDouble);
  return model;
}

// A place holds [u, -u, 0, 0], whose norm is itself times a constant, for the mean is 0 and the length fixed. Queries
// are -c u, keys and values u: what attention gives, the vector of the least product, comes to the third part, its
// negative to the fourth, so that the final norm again is a constant. The map at the end reads the third part.
void set_by_hand(const Model& model) {
  const at::NoGradGuard no_grad;
  const Tensors of(model);
  for (const auto& [name, tensor] : state(model))
    if (name.find("norm") == std::string::npos) of(name).zero_();
  const at::Tensor one = at::eye(kWidth, at::kDouble), none = at::zeros({kWidth, kWidth}, at::kDouble);
  constexpr double kSharp = 1e8;
  const double entry = std::sqrt(2.0 * kWidth), end = std::sqrt(1.0 * kWidth);  // what norms multiply by
  of("input.weight").copy_(at::cat({one, -one, none, none}, 0));
  of("layer0.mixer.query.weight").copy_(at::cat({-kSharp * one, none, none, none}, 1));
  of("layer0.mixer.key.weight").copy_(at::cat({one, none, none, none}, 1));
  of("layer0.mixer.value.weight").copy_(at::cat({one / entry, none, none, none}, 1));
  of("layer0.mixer.out.weight").copy_(at::cat({none, none, one, -one}, 0));
  of("classifier_out.weight").copy_(at::cat({none, none, one / end, none}, 1));
}

}  // namespace

TEST_CASE("one layer of full attention gives every place's furthest vector", "[furthest]") {
  const at::Tensor values = unit_vectors(), answer = furthest(values);
  for (const char* attention : {"softmax", "softmax-fused"}) {
    CAPTURE(attention);
    const auto model = encoder_of(attention);
    CHECK(nearest(model->forward(input_of(values)), values).eq(answer).sum().item<int64_t>() < kRows * kPlaces / 2);
    set_by_hand(*model);
    const at::Tensor predicted = model->forward(input_of(values));
    CHECK(nearest(predicted, values).eq(answer).all().item<bool>());
    const at::Tensor asked = at::gather(values, 1, answer.unsqueeze(-1).expand(values.sizes()));
    CHECK(apart(predicted, asked) < 1e-6);
  }
}

TEST_CASE("the nearest of the mirror image is the furthest, which is why tasks count that image as no answer",
          "[furthest]") {
  const at::Tensor values = unit_vectors();
  CHECK(at::equal(nearest(-values, values), furthest(values)));
}

TEST_CASE("with the same weights a window gives the furthest vector where it lies in the window, and only there",
          "[furthest]") {
  const at::Tensor values = unit_vectors(), answer = furthest(values);
  const auto model = encoder_of("local-window");
  set_by_hand(*model);
  const at::Tensor found = nearest(model->forward(input_of(values)), values).eq(answer);
  const at::Tensor reached = (answer - at::arange(kPlaces, at::kLong)).abs().le(kWindow);
  CHECK(at::equal(found, reached));
  const auto share = static_cast<double>(reached.sum().item<int64_t>()) / (kRows * kPlaces);
  CHECK((share > 0.1 && share < 0.4));  // about (2 w + 1) / n of them, 27 %
}

TEST_CASE("a place of L layers of windows of w knows nothing of vectors more than L w away, whatever the weights",
          "[furthest]") {
  at::Tensor values = unit_vectors();
  at::Tensor others = values.clone();
  others.select(1, 0).neg_();  // another first vector, in every row
  for (const int64_t layers : {1, 2, 3, 8}) {
    CAPTURE(layers);
    const auto model = encoder_of("local-window", layers);
    const at::Tensor moved =
        (model->forward(input_of(values)) - model->forward(input_of(others))).abs().amax({0, 2}) > 0;  // [n]
    for (int64_t place = 0; place < kPlaces; ++place) CHECK(moved[place].item<bool>() == (place <= layers * kWindow));
  }
  // Full attention needs one layer for all of them.
  const auto full = encoder_of("softmax");
  const at::Tensor moved = (full->forward(input_of(values)) - full->forward(input_of(others))).abs().amax({0, 2}) > 0;
  CHECK(moved.all().item<bool>());
}

TEST_CASE("of numbers the token-encoder is a linear map, blocks, a norm and a linear map", "[furthest]") {
  const auto model = encoder_of("none");
  const Tensors of(*model);
  const at::Tensor values = unit_vectors();
  const auto norm = [&](const std::string& name, const at::Tensor& x) {
    return at::layer_norm(x, {kModel}, of(name + ".weight"), of(name + ".bias"), 1e-12);
  };
  at::Tensor x = of.map("input", values);
  x = x + of.map("layer0.mixer.out", of.map("layer0.mixer.value", norm("layer0.mixer_norm", x)));
  x = x + of.map("layer0.ff.out", at::gelu(of.map("layer0.ff.in", norm("layer0.ff_norm", x))));
  CHECK(apart(model->forward(input_of(values)), of.map("classifier_out", norm("norm", x))) < 1e-10);
}

}  // namespace xformer::models::furthest_vector_test
