// The encoder family: wiring of both lineages, pooling, masks, cost, and the roles an attention can have in it.
#include <ATen/Functions.h>

#include <catch2/catch.hpp>

#include "models/model.h"
#include "models/stack.h"
#include "tensor/op_counter.h"

namespace xformer::models {

namespace {

ModelRequest small(const std::string& attention_name, const Json& model_options = Json::object(),
                   const Json& attention_options = Json::object()) {
  ModelRequest request;
  request.input = {13, 16};
  request.outputs = 10;
  request.attention = attention::resolve(attention_name);
  for (const OptionInfo& option : request.attention.options()) request.attention_options[option.name] = option.fallback;
  for (const OptionInfo& option : all_families().get("encoder").options)
    request.model_options[option.name] = option.fallback;
  request.model_options.update({{"dim", 16}, {"head_dim", 8}, {"ff_dim", 32}, {"classifier_dim", 24}});
  request.model_options.update(request.attention.base->model_defaults);
  request.model_options.update(model_options);
  request.attention_options.update(attention_options);
  request.seed = 4;
  return request;
}

std::shared_ptr<Model> build(const ModelRequest& request) { return all_families().get("encoder").build(request); }

// Rows of 13, 5 and 0 tokens, padded to 16.
ModelInput ragged() {
  ModelInput input{at::zeros({3, 16}, at::kLong), {}};
  for (int64_t i = 0; i < 13; ++i) input.tokens[0][i] = 1 + (i * 7) % 15;
  for (int64_t i = 0; i < 5; ++i) input.tokens[1][i] = 1 + (i * 3) % 15;
  input.key_valid = input.tokens > 0;
  return input;
}

// A mixer that carries a tensor from layer to layer, asks for a loss and counts steps.
class TracingMixer : public attention::SequenceMixer {
 public:
  explicit TracingMixer(const attention::BuildContext& context) : layer_(context.layer) {
    gain_ = context.shared_parameter("gain", [] { return at::ones({1}); });
  }
  at::Tensor forward(const at::Tensor& x, const SequenceMask& mask, attention::Carry& carry) override {
    CHECK(carry.contains("trace/count") == (layer_ > 0));
    carry["trace/count"] = layer_ > 0 ? carry["trace/count"] + 1 : at::ones({});
    last_ = carry["trace/count"];
    valid_ = mask.key_valid;
    return x * gain_;
  }
  [[nodiscard]] attention::Cost cost(int64_t batch, int64_t length) const override {
    const double flops = static_cast<double>(batch * length);
    return {flops, flops, 0};
  }
  at::Tensor extra_loss() override { return last_ * 0.5; }
  void after_step(int64_t step) override { steps_ = step; }

  int64_t layer_, steps_ = 0;
  at::Tensor gain_, last_, valid_;
};

class BlockOfOnes : public attention::LayerBlock {
 public:
  at::Tensor forward(const at::Tensor& x, const SequenceMask&, attention::Carry&) override {
    return at::ones_like(x) + 0 * x;
  }
  [[nodiscard]] attention::Cost cost(int64_t, int64_t) const override { return {}; }
};

// What a stack's layers are registered in.
class Owner : public Model {
 public:
  using Model::Model;
  at::Tensor forward(const ModelInput&, State&) override { return {}; }
  [[nodiscard]] attention::Cost cost(int64_t, int64_t) const override { return {}; }
};

}  // namespace

TEST_CASE("mean_padded is n / N_pad times mean_valid of masked output") {
  const auto padded = build(small("softmax", {{"pooling", "mean_padded"}}));
  const auto input = ragged();
  padded->eval();
  const at::Tensor logits = padded->forward(input);
  CHECK(logits.sizes() == at::IntArrayRef({3, 10}));
  CHECK(logits.isfinite().all().item<bool>());
  // With every token valid the two poolings agree.
  ModelInput full{at::randint(1, 16, {2, 16}, at::kLong), at::ones({2, 16}, at::kBool)};
  const auto valid = build(small("softmax", {{"pooling", "mean_valid"}}));
  valid->eval();
  CHECK(at::allclose(padded->forward(full), valid->forward(full), 1e-5, 1e-6));
  CHECK_FALSE(at::allclose(padded->forward(input), valid->forward(input), 1e-5, 1e-6));
}

TEST_CASE("what stands at padded positions changes nothing") {
  for (const char* pooling : {"mean_padded", "mean_valid", "cls_token", "cls_vector"}) {
    const auto model = build(small("mrs-linformer", {{"pooling", pooling}}));
    model->eval();
    ModelInput input = ragged();
    const at::Tensor before = model->forward(input);
    input.tokens = at::where(input.key_valid, input.tokens, at::full_like(input.tokens, 3));
    CHECK(model->forward(input).equal(before));
  }
}

TEST_CASE("key_places=all: attention reads padding as any other place, of examples that have one") {
  const ModelInput input = ragged();
  for (const char* name : {"softmax", "mrs-linear", "linformer"})
    for (const char* norm : {"pre", "batch"}) {
      INFO(name << ", " << norm);
      const Json options{{"pooling", "flatten"}, {"norm", norm}, {"norm_places", "all"}, {"mask_output", false}};
      const auto masked = build(small(name, options)), unmasked = [&] {
        Json wider = options;
        wider["key_places"] = "all";
        return build(small(name, wider));
      }();
      masked->eval();
      unmasked->eval();
      ModelInput full = input;
      full.key_valid = input.key_valid.logical_or(input.key_valid.any(1, true));
      CHECK(full.key_valid.select(0, 1).all().item<bool>());
      CHECK(unmasked->forward(input).equal(masked->forward(full)));
      // The first two rows have padding, the third nothing else.
      const at::Tensor apart = (unmasked->forward(input) - masked->forward(input)).abs().amax(1);
      CHECK(apart.narrow(0, 0, 2).min().item<double>() > 1e-4);
      CHECK(apart[2].item<double>() == 0);
    }
}

TEST_CASE("attention that reads padding is refused beside a norm that does not") {
  const auto check = [](const char* places) {
    all_families().get("encoder").check(
        small("softmax", {{"norm", "batch"}, {"norm_places", places}, {"key_places", "all"}}));
  };
  CHECK_NOTHROW(check("all"));
  CHECK_THROWS_WITH(check("valid"), Catch::Matchers::Contains("set model.norm_places=all"));
}

TEST_CASE("what layers leave out of padding changes no valid output and no gradient") {
  for (const std::string& name : attention::all_names()) {
    for (const bool post_norm : {false, true}) {
      INFO(name << (post_norm ? ", norm behind" : ""));
      const ModelRequest request = small(name);
      const ModelInput input = ragged();
      const at::Tensor valid = at::where(at::arange(16).eq(0), true, input.key_valid);
      std::vector<std::vector<at::Tensor>> found;  // outputs, gradients of x, then of parameters
      for (const bool padding_read : {false, true}) {
        const auto owner = std::make_shared<Owner>(request.seed);
        const Stack stack(*owner,
                          {.block = {.dim = 16, .ff_dim = 32},
                           .heads = 2,
                           .head_dim = 8,
                           .post_norm = post_norm,
                           .padding_read = padding_read},
                          request, /*max_len=*/16, /*pinned=*/0);
        owner->train();
        owner->dropout_stream()->set_step(3, 2);
        const at::Tensor x = InitStream(7).normal("x", {3, 16, 16}, 1).requires_grad_(true);
        State state = owner->init_state(3);
        const at::Tensor rows = valid.unsqueeze(-1), out = stack.forward(x, valid, state) * rows;
        out.square().sum().backward();
        found.push_back({out.detach(), x.grad()});
        if (!stack.reads_padding()) {
          const at::NoGradGuard no_grad;
          State again = owner->init_state(3);
          CHECK(at::equal(stack.forward(at::where(rows, x, 5.0), valid, again) * rows, out));
        }
        const bool own_block = request.attention.base->build_block != nullptr;
        CHECK(stack.reads_padding() == (padding_read || post_norm || own_block));
        for (const at::Tensor& parameter : owner->parameters())
          found.back().push_back(parameter.grad().defined() ? parameter.grad() : at::zeros({}));
      }
      for (size_t i = 0; i < found[0].size(); ++i) {
        INFO(i);
        CHECK(at::allclose(found[0][i], found[1][i], 1e-5, 1e-5));
      }
    }
  }
}

TEST_CASE("what a stack is given at padding is read unless every layer begins with a norm of needed places") {
  const auto reads = [](const auto& change) {
    StackOptions options{.block = {.dim = 16, .ff_dim = 32}, .heads = 2, .head_dim = 8};
    change(options);
    const ModelRequest request = small("softmax");
    const auto owner = std::make_shared<Owner>(request.seed);
    return Stack(*owner, options, request, /*max_len=*/16, /*pinned=*/0).reads_padding();
  };
  CHECK_FALSE(reads([](StackOptions&) {}));
  CHECK(reads([](StackOptions& options) { options.padding_read = true; }));
  CHECK(reads([](StackOptions& options) { options.padding_is_valid = true; }));
  CHECK(reads([](StackOptions& options) { options.reversible = true; }));
  CHECK(reads([](StackOptions& options) { options.first_mixer_norm = false; }));
  CHECK(reads([](StackOptions& options) { options.block.norm = NormKind::kBatch; }));
}

TEST_CASE("every trained tensor gets a gradient, in both lineages") {
  for (const std::string& name : attention::all_names()) {
    for (const char* init : {"mlpen", "glra"}) {
      const auto model =
          build(small(name, {{"init", init}, {"dropout", 0.0}, {"attention_dropout", 0.0}, {"positions", "learned"}}));
      model->train();
      at::cross_entropy_loss(model->forward(ragged()), at::tensor({1, 2, 3}, at::kLong)).backward();
      for (const auto& [key, tensor] : trainable(*model)) {
        INFO(name << " " << init << " " << key);
        // `none` reads neither queries nor keys.
        const bool unread =
            name.ends_with("none") && (key.find("query") != std::string::npos || key.find("key") != std::string::npos);
        CHECK(tensor.grad().defined() == !unread);
        // One block of a sinkhorn has nothing to sort.
        if (unread || key.find(".sort_") != std::string::npos) continue;
        CHECK(tensor.grad().abs().sum().item<float>() > 0);
      }
    }
  }
}

TEST_CASE("counted products equal the model's cost") {
  for (const std::string& name : attention::all_names()) {
    const auto model = build(small(name));
    model->eval();
    const at::NoGradGuard no_grad;
    models::ModelInput input = ragged();
    input.key_valid = at::ones_like(input.key_valid);  // padding is skipped by some and computed by others
    OpCounter counter;
    static_cast<void>(model->forward(input));
    INFO(name);
    CHECK(static_cast<double>(counter.counts().flops) == model->cost(3, 16).flops_executed);
  }
}

TEST_CASE("a parameter shared by layers is listed, trained and counted once") {
  ModelRequest request = small("linformer", Json::object(), {{"projected_len", 4}});
  const auto model = build(request);
  int64_t shared = 0;
  for (const auto& [name, tensor] : trainable(*model)) shared += name.starts_with("shared.");
  CHECK(shared == 1);
}

TEST_CASE("parameters of the mlpen softmax model at LRA size are those of lra-recipe 4") {
  ModelRequest request = small(
      "softmax", {{"dim", 64}, {"head_dim", 32}, {"ff_dim", 128}, {"classifier_dim", 128}, {"vocabulary_rows", 32}});
  request.input = {2000, 16};
  const auto model = build(request);
  // 32 x 64 ids, 2,048 x 64 positions; per layer 16,640 attention (attention-core 7), 16,576 feed-forward, 256 norms;
  // final norm 128; head 64 x 128 + 128 + 128 x 10 + 10.
  CHECK(parameter_count(*model) == 2048 + 131072 + 2 * (16640 + 16576 + 256) + 128 + 9610);
}

TEST_CASE("carry, extra losses and steps reach every layer, prefix tokens are in front and pinned") {
  std::vector<std::shared_ptr<TracingMixer>> mixers;
  std::vector<attention::BuildContext> contexts;
  attention::Descriptor tracing;
  tracing.name = "tracing";
  tracing.prefix_tokens = [](const Json&) { return int64_t{3}; };
  tracing.build_mixer = [&](const Json&, const attention::BuildContext& context) {
    contexts.push_back(context);
    mixers.push_back(std::make_shared<TracingMixer>(context));
    return mixers.back();
  };
  ModelRequest request = small("softmax", {{"layers", 3}});
  request.attention = {&tracing, nullptr, "tracing"};
  request.attention_options = Json::object();
  const auto model = build(request);
  model->eval();
  static_cast<void>(model->forward(ragged()));
  CHECK(contexts[0].pinned_tokens == 3);
  CHECK(contexts[0].max_len == 16 + 3);
  CHECK(mixers[0]->valid_.sizes() == at::IntArrayRef({3, 19}));
  CHECK(mixers[0]->valid_.narrow(1, 0, 3).all().item<bool>());
  CHECK(mixers[2]->last_.item<float>() == 3);
  CHECK(model->extra_loss().item<float>() == Approx(0.5 * (1 + 2 + 3)));
  model->after_step(5);
  CHECK(mixers[1]->steps_ == 5);
  CHECK(mixers[0]->gain_.is_same(mixers[2]->gain_));
}

TEST_CASE("an attention that owns the whole layer stands in place of the block") {
  attention::Descriptor block;
  block.name = "ones";
  block.build_block = [](const Json&, const attention::BuildContext&) { return std::make_shared<BlockOfOnes>(); };
  ModelRequest request = small("softmax");
  request.attention = {&block, nullptr, "ones"};
  request.attention_options = Json::object();
  const auto model = build(request);
  for (const auto& [name, tensor] : trainable(*model)) CHECK(name.find("mixer_norm") == std::string::npos);
  CHECK(model->forward(ragged()).sizes() == at::IntArrayRef({3, 10}));
}

TEST_CASE("the same seed builds the same model, another seed another") {
  const auto first = build(small("mrs-performer")), second = build(small("mrs-performer"));
  ModelRequest other = small("mrs-performer");
  other.seed = 5;
  const auto third = build(other);
  const auto a = state(*first), b = state(*second), c = state(*third);
  bool differs = false;
  for (size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i].second.equal(b[i].second));
    differs |= !a[i].second.equal(c[i].second);
  }
  CHECK(differs);
}

}  // namespace xformer::models
