// The five things an attention may need beyond q, k, v -> o: a role of its own, shared objects, a carry, a loss of its
// own and prefix tokens. Test doubles use each through the same calls as a real family.
#include "attention/multi_head.h"
#include "attention/support.h"

namespace xformer::attention::roles_test {

using namespace support;

// A core with a parameter shared by all layers, a carry between layers, a loss and an action after a step.
class DoubleCore : public AttentionCore {
 public:
  explicit DoubleCore(const BuildContext& context) : key_(context.scope + "double/sum") {
    gain_ = context.shared_parameter("double/gain", [&] { return at::ones({context.head_dim}); });
    table_ = context.shared_buffer("double/table", [] { return at::zeros({1}); });
  }
  at::Tensor forward(const at::Tensor&, const at::Tensor&, const at::Tensor& v, const SequenceMask&,
                     Carry& carry) override {
    // v plus the mean of what earlier layers left.
    const auto found = carry.find(key_);
    const at::Tensor before = found == carry.end() ? at::zeros_like(v) : found->second;
    carry[key_] = before + v;
    return v * gain_ + before;
  }
  [[nodiscard]] Cost cost(const Shape& shape) const override { return {0, 0, static_cast<double>(shape.query_len)}; }
  at::Tensor extra_loss() override { return gain_.square().sum(); }
  void after_step(int64_t step) override { table_.fill_(step); }

 private:
  std::string key_;
  at::Tensor gain_, table_;
};

class DoubleMixer : public SequenceMixer {
 public:
  explicit DoubleMixer(const BuildContext& context)
      : only_(register_module("only", std::make_shared<Linear>(context.model_dim, context.model_dim, true,
                                                               context.init_scheme, context.init.child("only")))) {}
  at::Tensor forward(const at::Tensor& x, const SequenceMask&, Carry&) override { return only_->forward(x); }
  [[nodiscard]] Cost cost(int64_t batch, int64_t length) const override {
    const double flops = 2.0 * static_cast<double>(batch * length * only_->weight.numel());
    return {flops, flops, 0};
  }

 private:
  std::shared_ptr<Linear> only_;
};

// Owns its norm and residual.
class DoubleBlock : public LayerBlock {
 public:
  at::Tensor forward(const at::Tensor& x, const SequenceMask&, Carry&) override {
    return x + at::layer_norm(x, {x.size(-1)});
  }
  [[nodiscard]] Cost cost(int64_t, int64_t) const override { return {}; }
};

Descriptor described(const std::string& name) {
  Descriptor result;
  result.name = name;
  result.prefix_tokens = [](const Json& options) { return options.value("global_tokens", int64_t{0}); };
  if (name == "double-core")
    result.build_core = [](const Json&, const BuildContext& c) { return std::make_shared<DoubleCore>(c); };
  if (name == "double-mixer")
    result.build_mixer = [](const Json&, const BuildContext& c) { return std::make_shared<DoubleMixer>(c); };
  if (name == "double-block")
    result.build_block = [](const Json&, const BuildContext&) { return std::make_shared<DoubleBlock>(); };
  return result;
}

TEST_CASE("a core gets projections around it, a mixer and a block bring their own") {
  const BuildContext context = make_context({});
  const at::Tensor x = random_tensor("roles", {2, 7, 10}).to(at::kFloat);
  Carry carry;
  const Descriptor core = described("double-core"), mixer = described("double-mixer"),
                   block = described("double-block");

  const auto around = build_mixer({&core, nullptr, core.name}, Json::object(), context);
  CHECK(around->named_parameters().contains("query.weight"));
  CHECK(around->forward(x, {}, carry).sizes() == x.sizes());
  CHECK(around->cost(2, 7).flops_executed == 8.0 * 2 * 7 * 10 * 10);
  CHECK(around->cost(2, 7).peak_elements == 7);

  const auto own = build_mixer({&mixer, nullptr, mixer.name}, Json::object(), context);
  CHECK(own->named_parameters().size() == 2);
  CHECK(own->forward(x, {}, carry).sizes() == x.sizes());
  CHECK_FALSE(extra_loss(*own).defined());
  CHECK_THROWS_AS(build_core({&mixer, nullptr, mixer.name}, Json::object(), context), UserError);

  CHECK(block.build_block(Json::object(), context)->forward(x, {}, carry).sizes() == x.sizes());
  CHECK_THROWS_AS(build_mixer({&block, nullptr, block.name}, Json::object(), context), Error);
}

TEST_CASE("what layers share is one tensor, listed and saved once, with the gradient of both") {
  const Descriptor core = described("double-core");
  BuildContext context = make_context({});
  const auto first = core.build_core(Json::object(), context);
  context.layer = 1;
  const auto second = core.build_core(Json::object(), context);
  CHECK(first->parameters().empty());
  CHECK(second->parameters().empty());
  REQUIRE(context.shared->named_parameters().size() == 1);
  CHECK(context.shared->named_buffers().size() == 1);
  const Inputs in = random_inputs(1, 2, 3, 5);
  Carry carry, other;
  const at::Tensor gain = context.shared->parameters()[0];
  (first->forward(in.q, in.k, in.v, {}, carry) + second->forward(in.q, in.k, in.v, {}, other)).sum().backward();
  CHECK(max_difference(gain.grad().to(at::kDouble), 2 * in.v.sum(at::IntArrayRef({0, 1, 2}))) < 1e-5);
}

TEST_CASE("a carry travels from layer to layer and starts empty in the next pass") {
  const Descriptor core = described("double-core");
  const BuildContext context = make_context({});
  const auto layer = core.build_core(Json::object(), context);
  const Inputs in = random_inputs(1, 2, 3, 5);
  for (int pass = 0; pass < 2; ++pass) {
    Carry carry;
    CHECK(max_difference(layer->forward(in.q, in.k, in.v, {}, carry), in.v) == 0);
    CHECK(max_difference(layer->forward(in.q, in.k, in.v, {}, carry), 2 * in.v) == 0);
    CHECK(carry.size() == 1);
  }
}

TEST_CASE("a loss and an action after a step pass through the projections and through mrs, once per scale") {
  const Descriptor core = described("double-core");
  const BuildContext context = make_context({});
  const auto mixer = build_mixer({&core, nullptr, core.name}, Json::object(), context);
  CHECK(extra_loss(*mixer).item<double>() == 5);
  CHECK(backends(*mixer) == "explicit");
  after_step(*mixer, 3);
  CHECK(context.shared->buffers()[0].item<double>() == 3);

  const BuildContext scaled = make_context({});
  const auto decorated =
      build_mixer({&core, all_decorators().find("mrs"), "mrs-double-core"}, {{"scales", {1, 2}}}, scaled);
  CHECK(extra_loss(*decorated).item<double>() == 10);
  CHECK(backends(*decorated) == "explicit");  // both scales
  after_step(*decorated, 4);
  REQUIRE(scaled.shared->buffers().size() == 2);
  for (const at::Tensor& table : scaled.shared->buffers()) CHECK(table.item<double>() == 4);
  // Each scale has a carry of its own.
  Carry carry;
  (void)decorated->forward(random_tensor("carried", {1, 6, 10}).to(at::kFloat), {}, carry);
  REQUIRE(carry.size() == 2);
  CHECK(carry.at("scale1/double/sum").size(2) == 6);
  CHECK(carry.at("scale2/double/sum").size(2) == 3);
}

TEST_CASE("prefix tokens are declared by the family from its options") {
  CHECK(described("double-core").prefix_tokens({{"global_tokens", 4}}) == 4);
  for (const Descriptor& variant : all_variants().all()) {
    INFO(variant.name);
    const bool globals = variant.name == "etc" || variant.name == "bigbird-etc",
               relay = variant.name == "star-transformer";
    const int64_t expected = globals ? 64 : relay ? 1 : 0;
    CHECK(variant.prefix_tokens(full_options({&variant, nullptr, variant.name})) == expected);
  }
}

}  // namespace xformer::attention::roles_test
