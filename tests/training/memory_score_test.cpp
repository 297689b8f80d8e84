// The scoring protocol `memory` (tasks-more 11): segment by segment with what is remembered, against the stream at
// once.
#include "data/adapter_place.h"
#include "models/family_model.h"
#include "training/evaluator.h"

namespace xformer::training::memory_score_test {

namespace {

constexpr int64_t kStream = 200;  // bytes of dev

std::string prose() {
  std::string text(1000, '\0');
  Stream numbers(3);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + (i * i % 7 + numbers.next_below(3)) % 7);
  return text;
}

std::shared_ptr<models::Model> model_of(const data::DataShape& shape, const std::string& attention, int64_t memory) {
  models::ModelRequest request =
      models::family_model::request_for("decoder", attention, {shape.max_len, shape.vocabulary}, 256,
                                        {{"dim", 16}, {"head_dim", 8}, {"layers", 2}, {"positions", "none"}});
  request.causal = true;
  if (memory > 0) request.attention_options["memory"] = memory;
  auto model = models::family_model::build("decoder", request);
  const at::NoGradGuard no_grad;
  for (const auto& [key, parameter] : models::trainable(*model))
    if (parameter.dim() == 2) parameter.mul_(2);
  return model;
}

struct Scored {
  double nats;
  int64_t windows;
};

Scored score(const adapter_place::Place& place, const std::string& attention, int64_t length,
             const std::string& scoring, int64_t batch, int64_t memory) {
  const auto source =
      place.open("bytes/prose", {{"length", length}, {"scoring", scoring}, {"dev_share", 0.2}, {"test_share", 0.2}});
  const auto model = model_of(source->info().shape, attention, memory);
  Evaluator evaluator(*model, tasks::make_task(source->info().shape), at::kCPU);
  EvaluationRequest request;
  request.batch = batch;
  request.padded_len = length;
  const auto first = evaluator.run(*source, request), again = evaluator.run(*source, request);
  CHECK(again->loss == first->loss);  // nothing is remembered from one evaluation to the next
  return {first->loss, first->examples};
}

}  // namespace

TEST_CASE("a stream scored in segments, remembered whole, is the stream scored at once", "[lanes]") {
  const adapter_place::Place place;
  scratch::put(place.folder / "prose", prose());
  const Scored whole = score(place, "transformer-xl", kStream, "window", 1, kStream);
  const Scored segments = score(place, "transformer-xl", 16, "memory", 1, kStream);
  CHECK((whole.windows == 1 && segments.windows == 13));  // the last has 8 bytes
  CHECK(segments.nats == Approx(whole.nats).epsilon(1e-6));
  CHECK(std::abs(score(place, "transformer-xl", 16, "window", 1, kStream).nats - whole.nats) > 1e-4);
  CHECK(std::abs(score(place, "transformer-xl", 16, "memory", 1, 8).nats - whole.nats) > 1e-4);

  // Lanes of 5, 5 and 3 windows, each begun with nothing remembered: the stream's parts scored at once.
  const Scored lanes = score(place, "transformer-xl", 16, "memory", 3, kStream);
  const Scored parts = score(place, "transformer-xl", 80, "window", 3, kStream);
  CHECK(lanes.windows == 13);
  CHECK(lanes.nats == Approx(parts.nats).epsilon(1e-6));
}

TEST_CASE("what remembers nothing is scored by memory as by windows", "[lanes]") {
  const adapter_place::Place place;
  scratch::put(place.folder / "prose", prose());
  for (const int64_t batch : {1, 4})
    CHECK(score(place, "softmax-fused", 16, "memory", batch, 0).nats ==
          Approx(score(place, "softmax-fused", 16, "window", batch, 0).nats).epsilon(1e-6));
}

TEST_CASE("mlpen's counts of batches have no meaning for lanes", "[lanes]") {
  const adapter_place::Place place;
  scratch::put(place.folder / "prose", prose());
  const auto source =
      place.open("bytes/prose", {{"length", 16}, {"scoring", "memory"}, {"dev_share", 0.2}, {"test_share", 0.2}});
  const auto model = model_of(source->info().shape, "linear", 0);
  Evaluator evaluator(*model, tasks::make_task(source->info().shape), at::kCPU);
  EvaluationRequest request;
  request.padded_len = 16;
  request.drop_remainder = true;
  CHECK_THROWS_WITH(evaluator.run(*source, request), Catch::Matchers::Contains("eval.parity"));
}

}  // namespace xformer::training::memory_score_test
