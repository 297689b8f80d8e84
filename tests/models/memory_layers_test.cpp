// Models with memories of earlier segments: a stream read in segments against the stream read at once, and how far back
// a stack of layers reaches (attention-more 5 and 6).
#include "models/family_model.h"

namespace xformer::models::memory_layers_test {

using namespace family_model;

namespace {

constexpr int64_t kIds = 13, kSegment = 6;

std::shared_ptr<Model> decoder(const std::string& name, const Json& attention, int64_t places, const std::string& norm,
                               int64_t layers = 3) {
  ModelRequest request =
      request_for("decoder", name, {places, kIds}, kIds - 1,
                  {{"dim", 16}, {"head_dim", 8}, {"layers", layers}, {"positions", "none"}, {"norm", norm}});
  request.causal = true;
  request.attention_options.update(attention);
  auto model = build("decoder", request);
  model->to(at::kDouble);
  // Weights that begin small would hide what comes from far.
  const at::NoGradGuard no_grad;
  for (const auto& [key, parameter] : trainable(*model))
    if (parameter.dim() == 2) parameter.mul_(2);
  return model;
}

at::Tensor stream(int64_t places) { return (at::arange(2 * places, at::kLong).square() % 97 % kIds).view({2, places}); }

ModelInput input(const at::Tensor& tokens) { return {tokens, at::ones(tokens.sizes(), at::kBool)}; }

at::Tensor by_segments(Model& model, const at::Tensor& tokens) {
  const at::NoGradGuard no_grad;
  State state = model.init_state(tokens.size(0));
  std::vector<at::Tensor> parts;
  for (int64_t first = 0; first < tokens.size(1); first += kSegment)
    parts.push_back(model.forward(input(tokens.narrow(1, first, kSegment)), state));
  return at::cat(parts, 1);
}

}  // namespace

TEST_CASE("a stream in segments, remembered long enough, is the stream read at once, through all layers", "[xl]") {
  const at::Tensor tokens = stream(4 * kSegment);
  const at::NoGradGuard no_grad;
  for (const std::string norm : {"pre", "post"}) {
    INFO(norm);
    const auto once = decoder("transformer-xl", {{"memory", 0}}, 4 * kSegment, norm);
    const at::Tensor expected = once->forward(input(tokens));
    const auto remembers = [&](const std::string& name, const Json& options) {
      const auto model = decoder(name, options, kSegment, norm);
      const auto own = trainable(*model), others = trainable(*once);
      REQUIRE(own.size() == others.size());
      for (size_t i = 0; i < own.size(); ++i) CHECK(own[i].second.equal(others[i].second));
      return apart(by_segments(*model, tokens), expected);
    };
    CHECK(remembers("transformer-xl", {{"memory", 3 * kSegment}}) < 1e-10);
    CHECK(remembers("transformer-xl", {{"memory", 5 * kSegment}}) < 1e-10);
    CHECK(remembers("transformer-xl", {{"memory", 2 * kSegment}}) > 1e-6);
    CHECK(remembers("compressive", {{"memory", kSegment},
                                    {"compressed_memory", 2 * kSegment},
                                    {"compression_rate", 1},
                                    {"compressor", "mean"}}) < 1e-10);
    CHECK(remembers("compressive", {{"memory", kSegment},
                                    {"compressed_memory", kSegment},
                                    {"compression_rate", 2},
                                    {"compressor", "mean"}}) > 1e-6);
  }
}

TEST_CASE("each layer reaches a memory farther back: two layers see two segments, and not a third", "[xl]") {
  const at::Tensor tokens = stream(5 * kSegment);
  at::Tensor changed = tokens.clone();
  changed.narrow(1, 0, kSegment).add_(1).remainder_(kIds);
  for (const int64_t layers : {1, 2, 3}) {
    const auto model = decoder("transformer-xl", {{"memory", kSegment}}, kSegment, "pre", layers);
    const at::Tensor moved = (by_segments(*model, tokens) - by_segments(*model, changed)).abs();
    for (int64_t segment = 1; segment < 5; ++segment) {
      INFO(layers << " layers, segment " << segment);
      const double most = moved.narrow(1, segment * kSegment, kSegment).max().item<double>();
      if (segment <= layers) CHECK(most > 1e-9);
      else CHECK(most == 0);
    }
  }
}

TEST_CASE("a later token changes no earlier score, across segments, in any bit", "[xl]") {
  const at::Tensor tokens = stream(3 * kSegment);
  for (const std::string name : {"transformer-xl", "compressive"}) {
    const auto model = decoder(name, {{"memory", 4}}, kSegment, "pre", 2);
    const at::Tensor before = by_segments(*model, tokens);
    for (const int64_t kept : {1, 5, 6, 7, 13}) {
      at::Tensor changed = tokens.clone();
      changed.narrow(1, kept, 3 * kSegment - kept).add_(2).remainder_(kIds);
      const at::Tensor after = by_segments(*model, changed);
      CHECK(after.narrow(1, 0, kept).equal(before.narrow(1, 0, kept)));
      CHECK_FALSE(after.narrow(1, kept, 1).equal(before.narrow(1, kept, 1)));
    }
  }
}

TEST_CASE("what is computed backwards has no place for a memory", "[xl]") {
  CHECK_THROWS_WITH(build("decoder",
                          [] {
                            ModelRequest request = request_for("decoder", "transformer-xl", {kSegment, kIds}, kIds - 1,
                                                               {{"reversible", true}});
                            request.causal = true;
                            return request;
                          }()),
                    Catch::Matchers::Contains("reversible"));
}

}  // namespace xformer::models::memory_layers_test
