// A run of a task that is answered at every place, from training to its predictions, against a forward pass by hand.
#include <ATen/Functions.h>

#include <fstream>

#include "core/text.h"
#include "inspect/forward_model.h"
#include "inspect/forward_support.h"
#include "scratch.h"
#include "training/trainer.h"

namespace xformer::inspect {

namespace {

constexpr int64_t kTests = 13, kPlaces = 16;

RunPlan recall_plan(int64_t loss_block) {
  plan::PlanRequest words;
  words.task = "mqar";
  words.model = "linear";
  words.layers.push_back({"test",
                          {{"data.length", kPlaces},
                           {"data.pairs", 3},
                           {"data.vocabulary", 24},
                           {"data.train_examples", 44},
                           {"data.dev_examples", 12},
                           {"data.test_examples", kTests},
                           {"model.dim", 16},
                           {"model.head_dim", 16},
                           {"model.loss_block", loss_block},
                           {"training.batch", 8},
                           {"training.micro_batch", 3},
                           {"training.epochs", 0},
                           {"training.steps", 12},
                           {"training.eval_epochs", 0},
                           {"training.eval_every", 4},
                           {"training.log_every", 3}}});
  return plan::resolve_plan(words);
}

RunRecord run(const RunPlan& plan, const Path& folder) {
  training::RunOptions options;
  options.out = folder;
  options.data.cache = folder / "cache";
  training::Observer silent;
  return training::train(plan, options, silent);
}

}  // namespace

TEST_CASE("predictions of places are those of the run's model, place by place", "[per-position]") {
  const scratch::Folder scratch;
  const RunPlan plan = recall_plan(0);
  const RunRecord record = run(plan, scratch / "run");
  CHECK(record.completed());
  CHECK(record.headline("test")->spec == accuracy_metric());

  const auto source = data::find_dataset("mqar").open(plan.group("data"), {}, {});
  data::BatchRows rows{{}, kPlaces};
  for (int64_t row = 0; row < kTests; ++row) rows.rows.push_back(row);
  data::HostBatch batch;
  data::fill_batch(*source, data::Split::kTest, rows, kTests, batch);
  const at::Tensor tokens = at::tensor(batch.whole("tokens"), at::kLong).view({kTests, kPlaces});
  const at::Tensor labels = at::tensor(batch.whole("label"), at::kLong).view({kTests, kPlaces});
  const ModelForward request{plan, training::read_weights(scratch / "run", [](const std::string&) {}), {}};
  const ForwardResult result = forward_model(request, {{"tokens", tokens}, {"labels", labels}});
  const at::Tensor logits = find(result, "logits");
  REQUIRE(logits.sizes() == at::IntArrayRef({kTests, kPlaces, 24}));
  const at::Tensor asked = labels >= 0;
  const at::Tensor nats =
      (-at::log_softmax(logits, -1).gather(2, labels.clamp_min(0).unsqueeze(2)).squeeze(2) * asked).sum(1);
  const at::Tensor right = logits.argmax(-1).eq(labels).sum(1);
  CHECK(find(result, "loss").item<double>() == Approx(nats.sum().item<double>() / (3 * kTests)).epsilon(1e-5));
  CHECK(*record.headline("test")->value == Approx(right.sum().item<double>() / (3 * kTests)));

  std::ifstream file(scratch / "run" / "predictions.csv");
  std::string line;
  std::getline(file, line);
  CHECK(line == "index,places,right,nats");
  int64_t compared = 0;
  for (; std::getline(file, line); ++compared) {
    const std::vector<std::string_view> fields = split(line, ',');
    REQUIRE(fields.size() == 4);
    const int64_t row = std::stoll(std::string(fields[0]));
    CHECK(fields[1] == "3");
    CHECK(std::stoll(std::string(fields[2])) == right[row].item<int64_t>());
    CHECK(std::stod(std::string(fields[3])) == Approx(nats[row].item<double>()).epsilon(1e-4));
  }
  CHECK(compared == kTests);
  CHECK_THROWS_WITH(forward_model(request, {{"tokens", tokens}, {"labels", labels - 1}}),
                    Catch::Matchers::Contains("from -1 to 23"));
}

TEST_CASE("losses made in blocks train the model that losses of all scores train", "[per-position]") {
  const scratch::Folder scratch;
  const RunRecord whole = run(recall_plan(0), scratch / "whole"), parts = run(recall_plan(5), scratch / "parts");
  REQUIRE((whole.dev && parts.dev && whole.dev->size() == 3 && parts.dev->size() == 3));
  for (size_t i = 0; i < 3; ++i) CHECK(parts.dev->at(i).loss == Approx(whole.dev->at(i).loss).epsilon(1e-4));
  CHECK(scratch::get(scratch / "whole" / "predictions.csv").substr(0, 30) ==
        scratch::get(scratch / "parts" / "predictions.csv").substr(0, 30));
}

}  // namespace xformer::inspect
