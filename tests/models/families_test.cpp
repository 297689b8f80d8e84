// Post-norm encoders of numbers, pairs of documents, the LSTM and the FT-Transformer against their equations.
#include <ATen/Functions.h>

#include <catch2/catch.hpp>

#include "core/error.h"
#include "models/family_model.h"
#include "tensor/probe.h"

namespace xformer::models::families_test {

using namespace family_model;

namespace {

const Json kSeries{{"dim", 16},
                   {"heads", 2},
                   {"head_dim", 8},
                   {"ff_dim", 24},
                   {"norm", "post"},
                   {"pooling", "flatten"},
                   {"init", "mvts"},
                   {"scale_input", true},
                   {"activate_output", true},
                   {"length_rule", "exact"}};

ModelInput series() {
  ModelInput input{{}, at::ones({3, 7}, at::kBool), InitStream(2).normal("values", {3, 7, 4}, 1)};
  input.key_valid[1].narrow(0, 5, 2).fill_(false);
  input.values[1].narrow(0, 5, 2).fill_(0);
  return input;
}

}  // namespace

TEST_CASE("the encoder of numbers is sqrt(m) W v + pos, post-norm blocks, norm, GELU, mask and all positions") {
  for (const std::string activation : {"gelu", "relu"}) {
    INFO(activation);
    Json options = kSeries;
    options["activation"] = activation;
    const auto model = build("encoder", request_for("encoder", "none", {7, 0, 1, 4}, 5, options));
    const Tensors of(*model);
    const ModelInput input = series();
    at::Tensor x = of.map("input", input.values) * 4 + of("positions");
    const at::Tensor valid = input.key_valid.unsqueeze(-1).to(at::kFloat);
    for (const std::string layer : {"layer0.", "layer1."}) {
      // Attention `none` hands the values on; padded rows are zero in front of the output map.
      const at::Tensor mixed = of.map(layer + "mixer.out", of.map(layer + "mixer.value", x) * valid);
      x = of.norm(layer + "mixer_norm", x + mixed);
      const at::Tensor hidden = of.map(layer + "ff.in", x);
      x = of.norm(layer + "ff_norm",
                  x + of.map(layer + "ff.out", activation == "relu" ? at::relu(hidden) : at::gelu(hidden)));
    }
    x = at::gelu(of.norm("norm", x)) * valid;
    CHECK(apart(model->forward(input), of.map("classifier_out", x.flatten(1))) < 1e-5);
    CHECK(of("classifier_out.weight").size(1) == 7 * 16);
    CHECK(of("positions").abs().max().item<double>() <= 0.02);
  }
}

TEST_CASE("scale_input multiplies the vectors of ids, too, by the root of the width") {
  const Json options{{"dim", 16}, {"heads", 2}, {"head_dim", 8}, {"scale_input", true}};
  const auto model = build("encoder", request_for("encoder", "none", {13, 16}, 10, options));
  const Tensors of(*model);
  const ModelInput input{at::arange(1, 13).view({1, 12}), at::ones({1, 12}, at::kBool)};
  const ProbeRecorder recorder([](const std::string& name) { return name == "embedding"; });
  static_cast<void>(model->forward(input));
  const at::Tensor expected = at::embedding(of("tokens"), input.tokens) * 4 + of("positions").narrow(0, 0, 12);
  CHECK(apart(recorder.kept().front().second, expected) < 1e-6);
}

TEST_CASE("what a padded place holds changes nothing, in any encoder of numbers") {
  for (const char* attention : {"softmax", "mrs-linear", "linformer"}) {
    const auto model = build("encoder", request_for("encoder", attention, {7, 0, 1, 4}, 5, kSeries));
    ModelInput input = series();
    const at::Tensor clean = model->forward(input);
    input.values[1].narrow(0, 5, 2).fill_(3);
    CAPTURE(attention);
    CHECK(apart(model->forward(input), clean) < 1e-5);
  }
}

TEST_CASE("flattened positions need the length that the model was built for") {
  const auto model = build("encoder", request_for("encoder", "softmax", {7, 0, 1, 4}, 5, kSeries));
  ModelInput input = series();
  input.values = input.values.narrow(1, 0, 5).contiguous();
  input.key_valid = input.key_valid.narrow(1, 0, 5).contiguous();
  CHECK_THROWS_WITH(model->forward(input), Catch::Matchers::Contains("7 places") && Catch::Matchers::Contains("got 5"));
}

TEST_CASE("both documents of a pair are summarised alone, and the head sees what its name says") {
  const Json small{{"dim", 16}, {"heads", 2}, {"head_dim", 8}, {"ff_dim", 24}, {"classifier_dim", 12}};
  for (const bool nli : {true, false}) {
    Json options = small;
    options.update({{"interaction", nli ? "nli" : "concat"}, {"head_layers", nli ? 2 : 3}});
    const auto model = build("dual-encoder", request_for("dual-encoder", "softmax", {13, 20, 2}, 2, options));
    const Tensors of(*model);
    ModelInput input{at::randint(1, 20, {3, 2, 16}, at::kLong), {}};
    input.tokens[1][1].narrow(0, 4, 12).fill_(0);
    input.key_valid = input.tokens > 0;
    at::Tensor pooled;
    const ProbeRecorder recorder([](const std::string& name) { return name == "pooled"; });
    const at::Tensor got = model->forward(input);
    pooled = recorder.kept().front().second;
    REQUIRE(pooled.sizes() == at::IntArrayRef({6, 16}));
    const at::Tensor a = pooled.view({3, 2, 16}).select(1, 0), b = pooled.view({3, 2, 16}).select(1, 1);
    at::Tensor x = nli ? at::cat({a, b, a * b, a - b}, 1) : at::cat({a, b}, 1);
    x = at::relu(of.map("classifier_in", x));
    if (!nli) x = at::relu(of.map("classifier_middle", x));
    CHECK(apart(got, of.map("classifier_out", x)) < 1e-6);
    // The other document of a pair has no say in a summary.
    ModelInput other{input.tokens.clone(), input.key_valid};
    other.tokens.select(1, 1).copy_(at::randint(1, 20, {3, 16}, at::kLong));
    other.key_valid = other.tokens > 0;
    const ProbeRecorder second([](const std::string& name) { return name == "pooled"; });
    static_cast<void>(model->forward(other));
    CHECK(apart(second.kept().front().second.view({3, 2, 16}).select(1, 0), a) < 1e-6);
  }
  const ModelRequest one = request_for("dual-encoder", "softmax", {13, 20, 1}, 2, small);
  CHECK_THROWS_WITH(all_families().get("dual-encoder").check(one), Catch::Matchers::Contains("encoder/softmax"));
}

TEST_CASE("the LSTM is its equations step by step, read behind the last valid place") {
  for (const bool numbers : {false, true}) {
    const InputSpec spec = numbers ? InputSpec{6, 0, 1, 3} : InputSpec{6, 9};
    const auto model = build("lstm", request_for("lstm", "none", spec, 4, {{"dim", 5}, {"hidden", 7}}));
    const Tensors of(*model);
    ModelInput input{{}, at::ones({2, 6}, at::kBool)};
    input.key_valid[1].narrow(0, 4, 2).fill_(false);
    at::Tensor x;
    if (numbers) {
      input.values = InitStream(8).normal("v", {2, 6, 3}, 1);
      x = of.map("input", input.values);
    } else {
      input.tokens = at::randint(0, 9, {2, 6}, at::kLong);
      x = at::embedding(of("tokens"), input.tokens);
    }
    at::Tensor h = at::zeros({2, 7}), c = at::zeros({2, 7}), last = at::zeros({2, 7});
    for (int64_t i = 0; i < 6; ++i) {
      const at::Tensor gates = at::linear(x.select(1, i), of("layer0_input_weight"), of("layer0_input_bias")) +
                               at::linear(h, of("layer0_state_weight"), of("layer0_state_bias"));
      const auto gate = [&](int64_t which) { return gates.narrow(1, 7 * which, 7); };
      c = at::sigmoid(gate(1)) * c + at::sigmoid(gate(0)) * at::tanh(gate(2));
      h = at::sigmoid(gate(3)) * at::tanh(c);
      last = at::where(input.key_valid.select(1, i).unsqueeze(1), h, last);
    }
    CHECK(apart(model->forward(input), of.map("classifier_out", last)) < 1e-6);
  }
}

namespace {

const std::vector<int64_t> kSizes{3, 5};

ModelInput rows_of_table() {
  ModelInput input{{}, at::ones({4, 6}, at::kBool), InitStream(3).normal("rows", {4, 6, 1}, 1)};
  input.values.select(1, 4).copy_(at::randint(0, 3, {4, 1}).to(at::kFloat));
  input.values.select(1, 5).copy_(at::randint(0, 5, {4, 1}).to(at::kFloat));
  return input;
}

std::shared_ptr<Model> table_model(const std::string& attention, const Json& attention_options = Json::object(),
                                   const Json& model_options = Json::object()) {
  ModelRequest request =
      request_for("ft-transformer", attention, {6, 0, 1, 1, kSizes}, 1, {{"dim", 16}, {"heads", 2}, {"ff_dim", 11}});
  request.attention_options.update(attention_options);
  request.model_options.update(model_options);
  return build("ft-transformer", request);
}

}  // namespace

TEST_CASE("the FT-Transformer is its equations: a token for each column, no norm before the first attention, ReGLU") {
  const auto model = table_model("none");
  const Tensors of(*model);
  const ModelInput input = rows_of_table();
  const at::Tensor rows = input.values.squeeze(-1), weight = of("column_weight"), bias = of("column_bias");
  std::vector<at::Tensor> tokens{weight[0].expand({4, 16})};
  for (int64_t j = 0; j < 4; ++j) tokens.push_back(rows.select(1, j).unsqueeze(1) * weight[j + 1] + bias[j]);
  for (int64_t j = 0; j < 2; ++j)
    tokens.push_back(of("codes").index_select(0, rows.select(1, 4 + j).to(at::kLong) + (j == 0 ? 0 : kSizes[0])) +
                     bias[4 + j]);
  at::Tensor x = at::stack(tokens, 1);
  for (const std::string layer : {"layer0.", "layer1.", "layer2."}) {
    const at::Tensor normed = layer == "layer0." ? x : of.norm(layer + "mixer_norm", x);
    x = x + of.map(layer + "mixer.out", of.map(layer + "mixer.value", normed));
    const at::Tensor both = of.map(layer + "ff_in", of.norm(layer + "ff_norm", x));
    x = x + of.map(layer + "ff_out", both.narrow(-1, 0, 11) * at::relu(both.narrow(-1, 11, 11)));
  }
  const at::Tensor meant = of.map("classifier_out", at::relu(of.norm("norm", x.select(1, 0))));
  CHECK(apart(model->forward(input), meant) < 1e-5);
}

TEST_CASE("numeric columns have no order for the FT-Transformer, and have one under coarse scales") {
  const at::Tensor swap = at::tensor({int64_t{2}, int64_t{0}, int64_t{3}, int64_t{1}});
  const auto difference = [&](const std::string& attention, const Json& options) {
    const auto model = table_model(attention, options);
    ModelInput input = rows_of_table();
    const at::Tensor before = model->forward(input);
    const at::NoGradGuard no_grad;
    input.values.narrow(1, 0, 4).copy_(input.values.narrow(1, 0, 4).index_select(1, swap));
    const Tensors of(*model);
    of("column_weight").narrow(0, 1, 4).copy_(of("column_weight").narrow(0, 1, 4).index_select(0, swap));
    of("column_bias").narrow(0, 0, 4).copy_(of("column_bias").narrow(0, 0, 4).index_select(0, swap));
    return apart(model->forward(input), before);
  };
  CHECK(difference("softmax", Json::object()) < 1e-5);
  CHECK(difference("mrs-softmax", {{"scales", {1, 2}}}) > 1e-4);
}

TEST_CASE("multi-resolution heads of scale 1 are the FT-Transformer itself") {
  CHECK(table_model("softmax")
            ->forward(rows_of_table())
            .equal(table_model("mrs-softmax", {{"scales", {1}}})->forward(rows_of_table())));
}

TEST_CASE("the FT-Transformer's compressed keys and values are mixtures of all tokens, CLS included", "[compression]") {
  for (const std::string sharing : {"headwise", "key-value", "layerwise"}) {
    INFO(sharing);
    const Json own{{"kv_compression", 3}, {"kv_sharing", sharing}};
    const auto model = table_model("softmax", Json::object(), own);
    const Tensors of(*model);
    const ModelInput input = rows_of_table();
    // The first layer's rows before the first feed-forward part, from the tokens that it takes.
    const ProbeRecorder recorder([](const std::string& name) { return name.starts_with("layer0.mixer"); });
    static_cast<void>(model->forward(input));
    std::map<std::string, at::Tensor> seen;
    for (const auto& [name, tensor] : recorder.kept()) seen[name] = tensor.to(at::kDouble);
    const at::Tensor q = seen.at("layer0.mixer.q"), k = seen.at("layer0.mixer.k"), v = seen.at("layer0.mixer.v");
    REQUIRE(k.sizes() == at::IntArrayRef({4, 2, 7, 8}));  // six columns and CLS
    const std::string core = "layer0.mixer.core.";
    const at::Tensor e =
        of(sharing == "layerwise" ? "shared.kv_compression" : core + "key_compression").to(at::kDouble);
    const at::Tensor f = sharing == "headwise" ? of(core + "value_compression").to(at::kDouble) : e;
    REQUIRE(e.sizes() == at::IntArrayRef({3, 7}));
    CHECK((e.abs() <= 1 / std::sqrt(7.0)).all().item<bool>());
    const at::Tensor weights = at::softmax(at::matmul(q, at::matmul(e, k).transpose(-1, -2)) / std::sqrt(8.0), -1);
    CHECK(apart(seen.at("layer0.mixer.mixed"), at::matmul(weights, at::matmul(f, v))) < 1e-5);
    // A matrix for each of 3 layers and of keys and values, of each layer, or of all.
    const int64_t matrices = sharing == "headwise" ? 6 : sharing == "key-value" ? 3 : 1;
    CHECK(parameter_count(*model) == parameter_count(*table_model("softmax")) + matrices * 3 * 7);
    for (const auto& [name, tensor] : trainable(*model))
      if (name.ends_with("compression")) CHECK(model->decays(name));
  }
}

TEST_CASE("under coarse scales heads of scale 1 alone are compressed", "[compression]") {
  const Json own{{"kv_compression", 3}};
  const auto model = table_model("mrs-softmax", {{"scales", {1, 2}}}, own);
  const Tensors of(*model);
  CHECK(of("layer1.mixer.core.scale1.key_compression").sizes() == at::IntArrayRef({3, 7}));
  CHECK(parameter_count(*model) == parameter_count(*table_model("mrs-softmax")) + 6 * 3 * 7);
  CHECK(model->forward(rows_of_table()).isfinite().all().item<bool>());
  CHECK(apart(table_model("softmax", Json::object(), own)->forward(rows_of_table()),
              table_model("mrs-softmax", {{"scales", {1}}}, own)->forward(rows_of_table())) == 0);
}

TEST_CASE("weight decay spares the table of columns, the blocks' norms and biases, and touches the final norm") {
  const auto model = table_model("softmax");
  std::vector<std::string> decayed;
  for (const auto& [name, tensor] : trainable(*model))
    if (model->decays(name)) decayed.push_back(name);
  const std::vector<std::string> layer{"mixer.query.weight", "mixer.key.weight", "mixer.value.weight",
                                       "mixer.out.weight",   "ff_in.weight",     "ff_out.weight"};
  std::vector<std::string> meant{"norm.weight", "classifier_out.weight"};
  for (const char* block : {"layer0.", "layer1.", "layer2."})
    for (const std::string& name : layer) meant.push_back(block + name);
  std::sort(meant.begin(), meant.end());
  std::sort(decayed.begin(), decayed.end());
  CHECK(decayed == meant);
}

TEST_CASE("families say what they cannot take") {
  using Catch::Matchers::Contains;
  const auto refused = [](const std::string& family, const InputSpec& input, const Json& options,
                          const std::string& attention = "softmax") {
    try {
      all_families().get(family).check(request_for(family, attention, input, 2, options));
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  CHECK_THAT(refused("encoder", {7, 20, 2}, Json::object()), Contains("dual-encoder/softmax"));
  CHECK_THAT(refused("encoder", {7, 0, 1, 4}, {{"pooling", "cls_token"}}), Contains("cls_vector"));
  CHECK_THAT(refused("encoder", {7, 20}, {{"norm", "post"}, {"reversible", true}}), Contains("norm=pre"));
  CHECK_THAT(refused("ft-transformer", {7, 20}, Json::object()), Contains("sequences of ids"));
  CHECK_THAT(refused("ft-transformer", {7, 0, 1, 1}, {{"heads", 7}}), Contains("divisor of model.dim"));
  CHECK_THAT(refused("ft-transformer", {7, 0, 1, 1}, {{"kv_compression", 9}}), Contains("8 tokens"));
  CHECK_THAT(refused("ft-transformer", {7, 0, 1, 1}, {{"kv_compression", 3}}, "reformer"),
             Contains("model.kv_compression: reformer"));
  CHECK_THAT(refused("lstm", {7, 20, 2}, Json::object()), Contains("one sequence"));
}

}  // namespace xformer::models::families_test
