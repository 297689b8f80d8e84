// What a family tells an attention: every field of BuildContext, the mask of every batch, and the memory of the batch
// before.
#include <ATen/Functions.h>

#include <catch2/catch.hpp>
#include <set>

#include "models/family_model.h"
#include "tensor/probe.h"

namespace xformer::models::context_test {

using namespace family_model;

namespace {

// Hands the values on, notes what it is told, and remembers how many batches went before.
class ListeningCore : public attention::AttentionCore {
 public:
  explicit ListeningCore(const attention::BuildContext& told) : context(told) {}
  at::Tensor forward(const at::Tensor&, const at::Tensor&, const at::Tensor& v, const SequenceMask& given,
                     attention::Carry& carry) override {
    mask = given;
    before = carry.at(memory());
    carry[memory()] = before + 1;
    carry[context.scope + "within"] = v;
    return v;
  }
  [[nodiscard]] attention::Cost cost(const attention::Shape&) const override { return {}; }
  void init_state(int64_t batch, State& state) const override { state[memory()] = at::zeros({batch}); }
  [[nodiscard]] std::string memory() const { return fmt::format("layer{}/{}batches", context.layer, context.scope); }

  attention::BuildContext context;
  SequenceMask mask;
  at::Tensor before;
};

struct Listener {
  attention::Descriptor descriptor;
  std::vector<std::shared_ptr<ListeningCore>> cores;

  explicit Listener(int64_t prefix = 0) {
    descriptor.name = "listening";
    descriptor.traits.causal_ok = true;
    descriptor.prefix_tokens = [prefix](const Json&) { return prefix; };
    descriptor.build_core = [this](const Json&, const attention::BuildContext& context) {
      cores.push_back(std::make_shared<ListeningCore>(context));
      return cores.back();
    };
  }
  Listener(const Listener&) = delete;
  std::shared_ptr<Model> build(const std::string& family, ModelRequest request, bool scaled = false) {
    request.attention = {&descriptor, scaled ? attention::all_decorators().find("mrs") : nullptr, "listening"};
    request.attention_options = scaled ? Json{{"scales", {1, 2}}} : Json::object();
    return family_model::build(family, request);
  }
};

// Rows of 16, 5 and 0 tokens.
ModelInput ragged() {
  const at::Tensor place = at::arange(16, at::kLong).unsqueeze(0);
  const at::Tensor lengths = at::tensor({16, 5, 0}, at::kLong).unsqueeze(1);
  const at::Tensor tokens = at::where(place < lengths, place * 7 % 11 + 1, at::zeros({}, at::kLong));
  return {tokens, tokens > 0};
}

ModelRequest encoder(const Json& options = Json::object(), const InputSpec& input = {16, 20}) {
  return request_for("encoder", "softmax", input, 3, options);
}

}  // namespace

TEST_CASE("every field that an attention may know is set by some family to something else than its default") {
  Listener plain, scaled, causal;
  (void)plain.build("encoder", encoder({{"dim", 32},
                                        {"heads", 4},
                                        {"head_dim", 8},
                                        {"pooling", "cls_vector"},
                                        {"init", "glra"},
                                        {"attention_bias", false},
                                        {"attention_dropout", 0.2}},
                                       {256, 256, 1, 0, {}, 16}));
  (void)scaled.build("encoder", encoder(), true);
  ModelRequest request = encoder();
  request.causal = true;
  (void)causal.build("encoder", request);
  std::set<std::string> set;
  const attention::BuildContext defaults;
  for (const Listener* listener : {&plain, &scaled, &causal})
    for (const auto& core : listener->cores) {
      // A field more does not compile: then it belongs here, and some family sets it.
      const auto& [model_dim, heads, head_dim, max_len, grid, layer, pinned, is_causal, dropout, bias, scheme, stream,
                   shared, scope, init] = core->context;
      const auto note = [&](const std::string& name, bool other) {
        if (other) set.insert(name);
      };
      note("model_dim", model_dim != defaults.model_dim);
      note("heads", heads != defaults.heads);
      note("head_dim", head_dim != defaults.head_dim);
      note("max_len", max_len != defaults.max_len);
      note("grid", grid != defaults.grid);
      note("layer", layer != defaults.layer);
      note("pinned", pinned != defaults.pinned_tokens);
      note("causal", is_causal != defaults.causal);
      note("dropout", dropout != defaults.dropout);
      note("bias", bias != defaults.bias);
      note("scheme", scheme != defaults.init_scheme);
      note("stream", stream != nullptr);
      note("shared", shared != nullptr);
      note("scope", scope != defaults.scope);
      note("init", !init.uniform("x", {4}, 0, 1).equal(defaults.init.uniform("x", {4}, 0, 1)));
    }
  CHECK(set == std::set<std::string>{"bias", "causal", "dropout", "grid", "head_dim", "heads", "init", "layer",
                                     "max_len", "model_dim", "pinned", "scheme", "scope", "shared", "stream"});
}

TEST_CASE("the columns of the image that the places are reach attention, at the scale of places only") {
  const InputSpec image{256, 256, 1, 0, {}, 16};
  Listener plain, scaled;
  (void)plain.build("encoder", encoder(Json::object(), image));
  for (const auto& core : plain.cores) CHECK(core->context.grid == 16);
  (void)scaled.build("encoder", encoder(Json::object(), image), true);
  for (const auto& core : scaled.cores) CHECK(core->context.grid == (core->context.scope == "scale1/" ? 16 : 0));
}

TEST_CASE("a causal task reaches attention and its mask: no later token changes a place of any layer") {
  for (const bool causal : {true, false})
    for (const char* name : {"softmax", "softmax-fused", "linear", "local-window"}) {
      INFO(name << " causal " << causal);
      ModelRequest request = request_for("encoder", name, {16, 20}, 3, {{"dim", 16}, {"head_dim", 8}});
      request.causal = causal;
      const auto model = build("encoder", request);
      ModelInput input{at::arange(1, 17, at::kLong).unsqueeze(0), at::ones({1, 16}, at::kBool)};
      const auto behind_layers = [&] {
        const ProbeRecorder recorder([](const std::string& tensor) { return tensor == "norm"; });
        (void)model->forward(input);
        return recorder.kept().front().second.narrow(1, 0, 9).clone();
      };
      const at::Tensor before = behind_layers();
      input.tokens.narrow(1, 9, 7).fill_(3);
      CHECK((apart(behind_layers(), before) < 1e-6) == causal);
    }
  Listener listener;
  ModelRequest request = encoder();
  request.causal = true;
  (void)listener.build("encoder", request)->forward(ragged());
  CHECK(listener.cores[1]->mask.causal);
}

TEST_CASE("families without a causal form refuse a causal task") {
  const auto refused = [](const std::string& family, ModelRequest request) {
    all_families().get(family).check(request);
    request.causal = true;
    CHECK_THROWS_AS(all_families().get(family).check(request), UserError);
  };
  refused("encoder", encoder({{"pooling", "cls_vector"}}));
  refused("encoder", request_for("encoder", "mrs-softmax", {16, 20}, 3, Json::object()));
  refused("ft-transformer", request_for("ft-transformer", "softmax", {7, 0, 1, 1}, 2, Json::object()));
  refused("cnn", request_for("cnn", "softmax", {16, 256}, 2, Json::object()));
  refused("vit", request_for("vit", "softmax", {16, 0, 1, 12}, 2, Json::object()));
}

TEST_CASE("a CLS vector is as valid as the place behind it, a reserved id and prefix tokens always are") {
  const auto valid = [](const std::string& pooling, int64_t prefix) {
    Listener listener(prefix);
    (void)listener.build("encoder", encoder({{"pooling", pooling}}))->forward(ragged());
    return listener.cores[0]->mask.key_valid;
  };
  const at::Tensor of_vector = valid("cls_vector", 0), of_id = valid("cls_token", 0), behind = valid("cls_vector", 2);
  CHECK(of_vector.sizes() == at::IntArrayRef({3, 17}));
  CHECK(of_vector.select(1, 0).to(at::kLong).equal(at::tensor({1, 1, 0}, at::kLong)));
  CHECK(of_vector.sum(1).equal(at::tensor({17, 6, 0}, at::kLong)));
  CHECK(of_id.sum(1).equal(at::tensor({16, 6, 1}, at::kLong)));
  CHECK(of_id.select(1, 0).all().item<bool>());
  CHECK(behind.narrow(1, 0, 2).all().item<bool>());
  CHECK(behind.select(1, 2).to(at::kLong).equal(at::tensor({1, 1, 0}, at::kLong)));
}

TEST_CASE("what a layer remembers goes on to the next batch under its own name, what it carries does not") {
  for (const bool scaled : {false, true}) {
    Listener listener;
    const auto model = listener.build("encoder", encoder(), scaled);
    State state = model->init_state(3);
    CHECK(state.size() == (scaled ? 4 : 2));
    for (int64_t batch = 0; batch < 3; ++batch) {
      (void)model->forward(ragged(), state);
      CHECK(state.size() == (scaled ? 4 : 2));
      for (const auto& core : listener.cores) {
        CHECK(core->before.equal(at::full({3}, static_cast<double>(batch), at::kFloat)));
        CHECK(state.at(core->memory()).equal(core->before + 1));
      }
    }
    // Nothing went before a batch of its own.
    (void)model->forward(ragged());
    CHECK(listener.cores[0]->before.sum().item<double>() == 0);
  }
}

}  // namespace xformer::models::context_test
