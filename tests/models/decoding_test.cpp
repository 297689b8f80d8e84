// A decoder read place by place against its forward pass over all places.
#include "models/decoding.h"

#include "models/family_model.h"

namespace xformer::models::decoding_test {

using namespace family_model;

namespace {

constexpr int64_t kPlaces = 24, kIds = 20, kClasses = 17;

std::shared_ptr<Model> decoder(const std::string& attention, const Json& options = Json::object()) {
  Json small{{"dim", 16}, {"head_dim", 8}, {"ff_dim", 24}};
  small.update(options);
  ModelRequest request = request_for("decoder", attention, {kPlaces, kIds}, kClasses, small);
  request.causal = true;
  auto model = build("decoder", request);
  model->to(at::kDouble);
  return model;
}

at::Tensor ids(int64_t places) { return (at::arange(2 * places, at::kLong) * 7 % 19 + 1).view({2, places}); }

// Scores [b, n, classes] of all places: of the first `prompt` only the last.
at::Tensor decoded(Model& model, const at::Tensor& tokens, int64_t prompt) {
  Decoded so_far{.memory = model.init_state(tokens.size(0))};
  auto& reader = dynamic_cast<DecodingModel&>(model);
  std::vector<at::Tensor> scores{reader.decode(tokens.narrow(1, 0, prompt), so_far)};
  for (int64_t i = prompt; i < tokens.size(1); ++i) scores.push_back(reader.decode(tokens.narrow(1, i, 1), so_far));
  return at::stack(scores, 1);
}

// Of one sequence behind the other, with what the model remembers.
at::Tensor forwarded(Model& model, const at::Tensor& tokens) {
  State state = model.init_state(tokens.size(0));
  std::vector<at::Tensor> scores;
  for (int64_t i = 0; i < tokens.size(1); i += kPlaces) {
    const at::Tensor part = tokens.narrow(1, i, kPlaces);
    scores.push_back(model.forward({part, at::ones(part.sizes(), at::kBool)}, state));
  }
  return at::cat(scores, 1);
}

double difference(Model& model, int64_t prompt) {
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = ids(model.init_state(2).empty() ? kPlaces : 2 * kPlaces);
  const at::Tensor all = forwarded(model, tokens);
  return apart(decoded(model, tokens, prompt), all.narrow(1, prompt - 1, all.size(1) - prompt + 1));
}

}  // namespace

TEST_CASE("a decoder read place by place scores as it does at once, with any causal attention", "[decoding]") {
  int64_t causal = 0;
  for (const std::string& name : attention::distinct_names()) {
    if (!attention::resolve(name).traits().causal_ok) continue;
    CAPTURE(name);
    const auto model = decoder(name);
    CHECK(difference(*model, 1) < 1e-10);
    CHECK(difference(*model, 9) < 1e-10);
    ++causal;
  }
  CHECK(causal >= 30);
}

TEST_CASE("so it does with every kind of layer, position and readout", "[decoding]") {
  for (const Json& options : std::vector<Json>{{{"norm", "post"}},
                                               {{"norm", "post"}, {"ff_dim", 0}},
                                               {{"ff_dim", 0}},
                                               {{"tied", false}, {"loss_block", 4}},
                                               {{"positions", "sinusoidal"}},
                                               {{"positions", "none"}},
                                               {{"reversible", true}},
                                               {{"ff_chunk", 5}, {"activation", "relu"}}})
    for (const char* name : {"softmax", "linear", "transformer-ls"}) {
      CAPTURE(name, options.dump());
      CHECK(difference(*decoder(name, options), 5) < 1e-10);
    }
}

TEST_CASE("what a decoder has read has the batch in front, so that its rows can be chosen among", "[decoding]") {
  const at::NoGradGuard no_grad;
  const auto model = decoder("softmax");
  auto& reader = dynamic_cast<DecodingModel&>(*model);
  const at::Tensor tokens = ids(kPlaces), order = at::tensor({1, 1}, at::kLong);
  Decoded so_far{.memory = model->init_state(2)};
  static_cast<void>(reader.decode(tokens.narrow(1, 0, 6), so_far));
  for (State& layer : so_far.layers)
    for (auto& [name, tensor] : layer) tensor = tensor.index_select(0, order);
  const at::Tensor next = reader.decode(tokens.narrow(1, 6, 1).index_select(0, order), so_far);
  CHECK(apart(next[0], decoded(*model, tokens, 6)[1][1]) < 1e-10);
  CHECK(apart(next[1], next[0]) == 0);
}

}  // namespace xformer::models::decoding_test
