// Self-pretraining as runs: the loss of an objective by its definition, what of the weights is carried over, what the
// second stage says of the first.
#include <ATen/Functions.h>

#include "run_setting.h"
#include "training/course.h"
#include "training/evaluator.h"
#include "training/weights.h"

namespace xformer::training {

namespace {

const Say kUnheard = [](const std::string&) {};

RunPlan stage_plan(const Json& more, const std::string& model = "linear") {
  Json values{{"data.train_examples", 120}};
  values.update(more);
  return plan_with(values, model);
}

// Mean nats over the places that are asked in the first rows of dev, from the scores in double.
double nats_by_hand(models::Model& model, const data::DataSource& source, int64_t rows, int64_t length) {
  data::BatchRows wanted{{}, length};
  for (int64_t row = 0; row < rows; ++row) wanted.rows.push_back(row);
  data::HostBatch batch;
  data::fill_batch(source, data::Split::kDev, wanted, rows, batch);
  const models::ModelInput input{
      at::tensor(batch.whole("tokens"), at::kLong).view({rows, length}),
      at::tensor(std::vector<int64_t>(batch.key_valid.begin(), batch.key_valid.end()), at::kLong)
          .view({rows, length})
          .to(at::kBool)};
  const at::NoGradGuard no_grad;
  model.eval();
  const at::Tensor scores = model.forward(input).to(at::kDouble);
  const std::vector<int64_t>& labels = batch.whole("label");
  double sum = 0, count = 0;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t place = 0; place < length; ++place) {
      const int64_t label = labels[static_cast<size_t>(row * length + place)];
      if (label < 0) continue;
      const at::Tensor of_place = scores[row][place];
      sum += (of_place.logsumexp(0) - of_place[label]).item<double>();
      ++count;
    }
  return sum / count;
}

}  // namespace

TEST_CASE("an objective's loss is the mean cross entropy of the places that are asked", "[pretraining]") {
  for (const Json& objective : {Json{{"data.objective", "masked"}, {"data.masked_share", 0.4}},
                                Json{{"data.objective", "causal"}, {"model.causal", true}}}) {
    CAPTURE(objective.dump());
    Setting setting;
    const RunPlan plan = stage_plan(objective, "softmax");
    const auto source =
        open_data(plan, setting.options("a").data, setting.silent.data_progress(), [] { return false; });
    const auto model = plan::build_model(plan, source->info().shape);
    Evaluator evaluator(*model, tasks::make_task(source->info().shape), at::kCPU);
    EvaluationRequest request;
    request.batch = 2;
    request.padded_len = plan::padded_len(plan, source->info().shape);
    const Evaluation dev = *evaluator.run(*source, request);
    REQUIRE(dev.examples == 3);
    const double nats = nats_by_hand(*model, *source, 3, request.padded_len);
    CHECK(dev.loss == Approx(nats).epsilon(1e-5));
    CHECK(dev.headline().value == Approx(nats / std::log(2.0)).epsilon(1e-5));
    CHECK(dev.headline().spec.name == "bits_per_symbol");
    CHECK_FALSE(dev.headline().spec.higher_is_better);
  }
}

TEST_CASE("the body is carried over bit for bit, the rest is named, and the record says what trained it",
          "[pretraining]") {
  Setting setting;
  const Json objective{{"data.objective", "masked"}, {"data.masked_share", 0.1}, {"attention.projected_len", 8}};
  const Json first = setting.run(stage_plan(objective, "mrs-linformer"), setting.options("first"));
  REQUIRE(first["status"] == "completed");
  CHECK(first["plan"]["data.objective"] == "masked");
  CHECK(first["data"]["details"]["objective"]["masked_share"] == 0.1);
  CHECK(first["data"]["sizes"] == Json{{"train", 114}, {"dev", 3}, {"test", 3}});
  CHECK(first["selection"]["split"] == "dev");
  CHECK(first["metrics"][0]["name"] == "bits_per_symbol");

  const Path file = setting.scratch / "first" / "model.safetensors";
  const Weights weights = read_weights(file, kUnheard);
  const RunPlan plan =
      stage_plan({{"training.init_sha256", weights.sha256}, {"attention.projected_len", 8}}, "mrs-linformer");
  const auto model = plan::build_model(plan);
  const auto before = plan::build_model(plan);
  std::string heard;
  const Json entry =
      prepare_model(*model, plan, file, setting.scratch / "second", [&](const std::string& line) { heard += line; });
  const auto initial = models::state(*before);
  int64_t carried = 0;
  for (size_t i = 0; const auto& [name, tensor] : models::state(*model)) {
    CAPTURE(name);
    const at::Tensor& own = initial[i++].second;
    if (name.starts_with("classifier_")) CHECK(at::equal(tensor, own));
    else CHECK((at::equal(tensor, weights.tensors.at(name)) && ++carried > 0));
  }
  CHECK(entry["taken"] == carried);
  CHECK(entry["fresh_tensors"] ==
        Json{"classifier_in.weight", "classifier_in.bias", "classifier_out.weight", "classifier_out.bias"});
  CHECK(entry["unused_tensors"] == Json{"mask", "symbols_out.bias", "symbols_out.weight"});
  CHECK(entry["run"] ==
        Json{{"task", "listops"},
             {"protocol", "mlpen"},
             {"model", "mrs-linformer"},
             {"seed", 0},
             {"data.objective", "masked"},
             {"data.masked_share", 0.1},
             {"step", weights.metadata.at("step") == "12" ? 12 : std::stoi(weights.metadata.at("step"))}});
  CHECK_THAT(heard, Catch::Matchers::Contains("fresh: classifier_in.weight") &&
                        Catch::Matchers::Contains("unused in the file: mask"));

  RunOptions options = setting.options("second");
  options.init_from = file;
  const Json second = setting.run(plan, options);
  CHECK(second["init_from"] == entry);
  CHECK(second["data"]["sizes"]["test"] == 13);
  CHECK(second["metrics"][0]["name"] == "accuracy");
}

TEST_CASE("an objective's run that was stopped goes on to the same bits", "[pretraining]") {
  Setting setting;
  const RunPlan plan = stage_plan({{"data.objective", "masked"}, {"model.dropout", 0.1}});
  static_cast<void>(setting.run(plan, setting.options("whole")));
  for (const int64_t step : {3, 5, 11}) {
    RunOptions options = setting.options("parts");
    options.stop_after = step;
    static_cast<void>(setting.run(plan, options));
  }
  static_cast<void>(setting.run(plan, setting.options("parts")));
  CHECK(setting.content_hash("parts") == setting.content_hash("whole"));
}

}  // namespace xformer::training
