// The family block-encoder (attention-third 5).
#include "models/family_model.h"
#include "tensor/op_counter.h"
#include "tensor/probe.h"

namespace xformer::models::block_encoder_test {

using namespace family_model;

const Json kTiny{{"dim", 16},    {"heads", 2},           {"head_dim", 8},
                 {"ff_dim", 24}, {"classifier_dim", 12}, {"length_rule", "exact"}};

std::shared_ptr<Model> make(const std::string& family, const std::string& attention, int64_t length, Json options) {
  Json all = kTiny;
  all.update(options);
  return build(family, request_for(family, attention, {length, 20}, 3, all));
}

ModelInput ids(int64_t length, const std::vector<int64_t>& valid) {
  at::manual_seed(5);
  const auto rows = static_cast<int64_t>(valid.size());
  ModelInput input{at::randint(1, 20, {rows, length}, at::kLong), {}};
  for (int64_t b = 0; b < rows; ++b)
    input.tokens[b].narrow(0, valid[static_cast<size_t>(b)], length - valid[static_cast<size_t>(b)]).fill_(0);
  input.key_valid = input.tokens > 0;
  return input;
}

const std::vector<std::string> kUnited{"mean", "tokens", "max", "attention", "first"};

TEST_CASE("one block is the encoder bit for bit, however blocks would unite") {
  const ModelInput input = ids(24, {24, 9, 1});
  for (const char* pooling : {"mean_padded", "mean_valid", "cls_vector"}) {
    const at::Tensor meant = make("encoder", "softmax", 24, {{"pooling", pooling}})->forward(input);
    for (const std::string& unite : kUnited)
      CHECK(at::equal(
          make("block-encoder", "softmax", 24, {{"pooling", pooling}, {"block", 24}, {"unite", unite}})->forward(input),
          meant));
  }
}

TEST_CASE("blocks weighed by tokens equal an encoder with local-block attention and positions that repeat") {
  const int64_t block = 7, length = 24;
  const auto model =
      make("block-encoder", "softmax", length, {{"pooling", "mean_valid"}, {"block", block}, {"unite", "tokens"}});
  ModelRequest request = request_for("encoder", "local-block", {length, 20}, 3, kTiny);
  request.model_options["pooling"] = "mean_valid";
  request.attention_options["block"] = block;
  const auto encoder = build("encoder", request);
  const Tensors from(*model);
  for (const auto& [name, tensor] : state(*encoder)) {
    const at::Tensor values = from(name);
    if (name != "positions") tensor.data().copy_(values);
    for (int64_t i = 0; name == "positions" && i < length; ++i) tensor.data()[i].copy_(values[i % block]);
  }
  for (const std::vector<int64_t>& valid : {std::vector<int64_t>{24, 15, 1}, {7, 8, 14}}) {
    const ModelInput input = ids(length, valid);
    CHECK(apart(model->forward(input), encoder->forward(input)) < 1e-5);
  }
}

TEST_CASE("the order of blocks is lost but to the first, and a block's vector is its own tokens' alone") {
  const ModelInput input = ids(24, {24, 24});
  const at::Tensor order =
      at::cat({at::arange(8, 16, at::kLong), at::arange(16, 24, at::kLong), at::arange(8, at::kLong)});
  const ModelInput moved{input.tokens.index_select(1, order), input.key_valid};
  for (const std::string& unite : kUnited) {
    INFO(unite);
    const auto model = make("block-encoder", "softmax", 24, {{"block", 8}, {"unite", unite}});
    const double change = apart(model->forward(input), model->forward(moved));
    if (unite == "first") CHECK(change > 1e-4);
    else CHECK(change < 1e-6);
  }
  const auto model = make("block-encoder", "softmax", 24, {{"block", 8}});
  const auto vectors = [&](const ModelInput& given) {
    const ProbeRecorder recorder([](const std::string& name) { return name == "block_embedding"; });
    (void)model->forward(given);
    return recorder.kept().front().second.detach();
  };
  ModelInput other{input.tokens.clone(), input.key_valid};
  other.tokens.narrow(1, 8, 8).fill_(3);
  const at::Tensor before = vectors(input), after = vectors(other);
  REQUIRE(before.sizes() == at::IntArrayRef({2, 3, 16}));
  CHECK(at::equal(before.select(1, 0), after.select(1, 0)));
  CHECK(at::equal(before.select(1, 2), after.select(1, 2)));
  CHECK(apart(before.select(1, 1), after.select(1, 1)) > 1e-4);
}

TEST_CASE("vectors of blocks unite as their names say, over blocks that hold a token") {
  const ModelInput input = ids(20, {20, 9, 0});
  for (const std::string& unite : kUnited) {
    INFO(unite);
    const auto model =
        make("block-encoder", "softmax", 20, {{"block", 8}, {"unite", unite}, {"pooling", "mean_valid"}});
    if (unite == "attention")
      for (const auto& [name, tensor] : trainable(*model))
        if (name == "unite") tensor.data().copy_(InitStream(3).normal("u", {16}, 1));
    const Tensors of(*model);
    const ProbeRecorder recorder([](const std::string& name) { return name == "block_embedding"; });
    const at::Tensor got = model->forward(input), e = recorder.kept().front().second.detach();
    const std::vector<std::vector<double>> counts{{8, 8, 4}, {8, 1, 0}, {0, 0, 0}};
    for (int64_t b = 0; b < 3; ++b) {
      at::Tensor sum = at::zeros({16}), largest;
      double total = 0;
      for (int64_t c = 0; c < 3; ++c) {
        const double count = counts[static_cast<size_t>(b)][static_cast<size_t>(c)];
        if (count == 0) continue;
        const double weight = unite == "tokens"      ? count
                              : unite == "attention" ? std::exp(at::dot(of("unite"), e[b][c]).item<double>())
                                                     : 1;
        sum = sum + e[b][c] * weight;
        total += weight;
        largest = largest.defined() ? at::maximum(largest, e[b][c]) : e[b][c];
      }
      at::Tensor meant = total > 0 ? sum / total : sum;
      if (unite == "max" && largest.defined()) meant = largest;
      if (unite == "first") meant = e[b][0];
      CHECK(apart(got[b], of.map("classifier_out", at::relu(of.map("classifier_in", meant)))) < 1e-5);
    }
  }
}

TEST_CASE("blocks overlap by what is asked, padding says nothing, and products are counted") {
  for (const int64_t length : {1, 8, 9, 30})
    for (const int64_t overlap : {0, 3}) {
      const auto model = make("block-encoder", "linear", length, {{"block", 8}, {"block_overlap", overlap}});
      const ModelInput input = ids(length, {length, (length + 1) / 2});
      const int64_t blocks = length <= 8 ? 1 : 1 + (length - 8 + 8 - overlap - 1) / (8 - overlap);
      {
        const ProbeRecorder recorder([](const std::string& name) { return name == "block_embedding"; });
        (void)model->forward(input);
        CHECK(recorder.kept().front().second.size(1) == blocks);
      }
      const at::Tensor out = model->forward(input);
      ModelInput other{at::where(input.key_valid, input.tokens, at::full_like(input.tokens, 4)), input.key_valid};
      CHECK(at::equal(model->forward(other), out));
    }
  const auto model = make("block-encoder", "softmax", 30, {{"block", 8}});
  const ModelInput input = ids(30, {30, 30});
  const at::NoGradGuard no_grad;
  const OpCounter counter;
  (void)model->forward(input);
  CHECK(static_cast<double>(counter.counts().flops) == model->cost(2, 30).flops_executed);
  CHECK(parameter_count(*make("block-encoder", "softmax", 30, {{"block", 8}, {"unite", "attention"}})) ==
        parameter_count(*make("encoder", "softmax", 8, Json::object())) + 16);
}

TEST_CASE("an encoder of blocks refuses what it cannot do, with the reason") {
  const auto refused = [](const Json& options, int64_t sequences, bool causal) {
    Json all = kTiny;
    all.update(options);
    ModelRequest request = request_for("block-encoder", "softmax", {24, 20, sequences}, 3, all);
    request.causal = causal;
    try {
      (void)build("block-encoder", request);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  using Catch::Matchers::Contains;
  CHECK_THAT(refused(Json::object(), 1, true), Contains("causal"));
  CHECK_THAT(refused({{"block", 4}, {"block_overlap", 4}}, 1, false), Contains("model.block_overlap"));
  CHECK_THAT(refused({{"pooling", "flatten"}}, 1, false), Contains("model.pooling"));
  CHECK_THAT(refused(Json::object(), 2, false), Contains("dual-encoder/softmax"));
  CHECK(all_families().get("block-embedding").name == "block-encoder");
}

TEST_CASE("pooling by the relay is half of it and half of the largest tokens; it needs a token in front") {
  const auto star = make("encoder", "star-transformer", 9, {{"pooling", "prefix_max"}});
  const Tensors of(*star);
  const ModelInput input = ids(9, {9, 4, 0});
  const ProbeRecorder recorder([](const std::string& name) { return name == "norm" || name == "pooled"; });
  (void)star->forward(input);
  at::Tensor x, pooled;
  for (const auto& [name, tensor] : recorder.kept()) (name == "norm" ? x : pooled) = tensor.detach();
  REQUIRE(x.sizes() == at::IntArrayRef({3, 10, 16}));
  const std::vector<int64_t> valid{9, 4, 0};
  for (int64_t b = 0; b < 3; ++b) {
    const int64_t count = valid[static_cast<size_t>(b)];
    const at::Tensor largest = count > 0 ? x[b].narrow(0, 1, count).amax(0) : at::zeros({16});
    CHECK(apart(pooled[b], (x[b][0] + largest) / 2) < 1e-6);
  }
  CHECK_THROWS_WITH(make("encoder", "softmax", 9, {{"pooling", "prefix_max"}}),
                    Catch::Matchers::Contains("prefix_max"));
}

}  // namespace xformer::models::block_encoder_test
