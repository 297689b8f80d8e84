// Places that hold events: the equation, which families take them, padding, and the slides' claim about shifts.
#include "models/event_input.h"

#include <cmath>

#include "models/family_model.h"

namespace xformer::models::event_input_test {

using namespace family_model;
using Catch::Matchers::Contains;

constexpr int64_t kPlaces = 12;

// Two numbers, then codes of 5 and of 40 words; both above 0, as real events have them.
InputSpec events() { return {kPlaces, 0, 1, 4, {5, 40}}; }

ModelInput users(int64_t count) {
  ModelInput input{{}, at::ones({count, kPlaces}, at::kBool), InitStream(3).normal("v", {count, kPlaces, 4}, 1)};
  for (const auto& [at, size] : {std::pair<int64_t, int64_t>{2, 5}, {3, 40}})
    for (int64_t user = 0; user < count; ++user)
      for (int64_t place = 0; place < kPlaces; ++place)
        input.values[user][place][at] = static_cast<double>(1 + (7 * user + 3 * place * place + at) % (size - 1));
  return input;
}

ModelRequest request_of(const std::string& attention, const Json& attention_options = Json::object()) {
  ModelRequest request = request_for("encoder", attention, events(), 1,
                                     {{"dim", 16},
                                      {"heads", 2},
                                      {"head_dim", 8},
                                      {"layers", 2},
                                      {"ff_dim", 24},
                                      {"positions", "none"},
                                      {"pooling", "mean_valid"},
                                      {"length_rule", "exact"}});
  request.attention_options.update(attention_options);
  return request;
}

at::Tensor rolled(const at::Tensor& values, int64_t places) {
  return at::cat({values.narrow(1, kPlaces - places, places), values.narrow(1, 0, kPlaces - places)}, 1);
}

TEST_CASE("an event is one map of its numbers and of its words' vectors", "[event_input]") {
  CHECK(code_width(5) == 4);     // 1.6 * 5^0.56 = 3.94
  CHECK(code_width(40) == 13);   // 12.63
  CHECK(code_width(500) == 32);  // 51.95
  EventInput input(events(), 6, "mlpen", InitStream(2));
  const ModelInput given = users(3);
  const at::Tensor got = input.forward(given.values);
  REQUIRE(got.sizes() == at::IntArrayRef({3, kPlaces, 6}));
  std::map<std::string, at::Tensor> of;
  for (const auto& item : input.named_parameters()) of[item.key()] = item.value().detach().to(at::kDouble);
  REQUIRE(of.at("map.weight").sizes() == at::IntArrayRef({6, 4 + 13 + 2}));
  for (int64_t user = 0; user < 3; ++user)
    for (int64_t place = 0; place < kPlaces; ++place)
      for (int64_t out = 0; out < 6; ++out) {
        const at::Tensor event = given.values[user][place].to(at::kDouble), row = of.at("map.weight")[out];
        double meant = of.at("map.bias")[out].item<double>();
        for (int64_t i = 0; i < 4; ++i)
          meant += row[i].item<double>() * of.at("codes_0")[event[2].item<int64_t>()][i].item<double>();
        for (int64_t i = 0; i < 13; ++i)
          meant += row[4 + i].item<double>() * of.at("codes_1")[event[3].item<int64_t>()][i].item<double>();
        for (int64_t i = 0; i < 2; ++i) meant += row[17 + i].item<double>() * event[i].item<double>();
        REQUIRE(got[user][place][out].item<double>() == Approx(meant).margin(1e-5));
      }
  CHECK(input.flops() == 2 * 6 * 19);
}

TEST_CASE("encoders and the LSTM take events, and padding changes nothing", "[event_input]") {
  const std::vector<std::string> models{"longformer", "linformer", "conv-linformer", "lstm"};
  for (const std::string& name : models) {
    CAPTURE(name);
    const auto model = name == "lstm"
                           ? build("lstm", request_for("lstm", "none", events(), 1, {{"dim", 6}, {"hidden", 7}}))
                           : build("encoder", request_of(name));
    ModelInput input = users(2);
    input.key_valid.narrow(1, 9, 3).fill_(false);
    input.values.narrow(1, 9, 3).zero_();
    const at::Tensor scores = model->forward(input);
    REQUIRE(scores.sizes() == at::IntArrayRef({2, 1}));
    CHECK(apart(scores[0], scores[1]) > 1e-4);
    input.values.narrow(1, 9, 3).fill_(1);
    CHECK(apart(model->forward(input), scores) < 1e-5);
    input.values[0][8][3] = 39;  // another word in the last event
    CHECK(apart(model->forward(input)[0], scores[0]) > 1e-5);
    const Tensors of(*model);
    CHECK(of("events.codes_1").sizes() == at::IntArrayRef({40, 13}));
    CHECK(of("events.map.weight").size(1) == 19);
  }
  // A row of a table is no event, and ids with codes beside them are none.
  CHECK_FALSE(holds_events({6, 0, 1, 1, {3, 5}}));
  CHECK_THROWS_WITH(all_families().get("lstm").check(request_for("lstm", "none", {6, 0, 1, 1, {3}}, 1, Json::object())),
                    Contains("ids, numbers or events"));
}

// attention-more 17 (a): the slides' reason for the convolution.
TEST_CASE("a convolution Linformer without positions is blind to rolls by its stride, a Linformer to none",
          "[event_input]") {
  const ModelInput input = users(2);
  const auto moved_by = [&](Model& model, int64_t places) {
    ModelInput other = input;
    other.values = rolled(input.values, places);
    return apart(model.forward(other), model.forward(input));
  };
  const auto convolution = build("encoder", request_of("conv-linformer", {{"projected_len", 4}}));  // stride 3
  CHECK(moved_by(*convolution, 3) < 1e-6);
  CHECK(moved_by(*convolution, 6) < 1e-6);
  CHECK(moved_by(*convolution, 1) > 1e-5);
  const auto dense = build("encoder", request_of("linformer", {{"projected_len", 4}}));
  CHECK(moved_by(*dense, 3) > 1e-5);
  CHECK(moved_by(*dense, 1) > 1e-5);
}

}  // namespace xformer::models::event_input_test
