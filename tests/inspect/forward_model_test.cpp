// `xformer forward` of a whole model without its words: against the predictions of a run, differences, other types.
#include "inspect/forward_model.h"

#include <ATen/Functions.h>

#include <fstream>

#include "core/text.h"
#include "inspect/forward_support.h"
#include "scratch.h"
#include "training/trainer.h"

namespace xformer::inspect {

using scratch::message_of;

namespace {

RunPlan model_plan(const std::string& name, const Json& more = Json::object()) {
  Json values{{"data.min_length", 5},     {"data.max_length", 30},    {"data.train_examples", 44},
              {"data.dev_examples", 12},  {"data.test_examples", 13}, {"model.dim", 16},
              {"model.head_dim", 8},      {"model.ff_dim", 16},       {"model.classifier_dim", 16},
              {"training.batch", 8},      {"training.steps", 12},     {"training.warmup", 2},
              {"training.eval_every", 4}, {"training.log_every", 3}};
  values.update(more);
  plan::PlanRequest words;
  words.task = "listops";
  words.model = name;
  words.layers.push_back({"test", values});
  return plan::resolve_plan(words);
}

// The weights of a freshly built model in a type.
training::Weights weights_of(const RunPlan& plan, at::ScalarType type) {
  const auto model = plan::build_model(plan);
  training::Weights weights;
  for (const auto& [name, tensor] : models::state(*model)) weights.tensors.emplace(name, tensor.detach().to(type));
  weights.source = "test";
  return weights;
}

TensorMap model_inputs(int64_t length) {
  const at::Tensor valid = support::length_mask({length, 9}, length).key_valid;
  const at::Tensor tokens = (at::arange(2 * length, at::kLong).view({2, length}) * 7) % 14 + 1;
  return {{"tokens", tokens * valid}, {"mask", valid}};
}

}  // namespace

TEST_CASE("a run's model on its test split gives the scores of predictions.csv") {
  scratch::Folder scratch;
  const RunPlan plan = model_plan("mrs-linformer", {{"attention.projected_len", 4}, {"model.dropout", 0.1}});
  training::RunOptions options;
  options.out = scratch / "run";
  options.data.cache = scratch / "cache";
  training::Observer silent;
  (void)training::train(plan, options, silent);

  const auto source = data::find_dataset("listops").open(plan.group("data"), options.data, {});
  const int64_t count = source->size(data::Split::kTest), length = plan::padded_len(plan);
  data::BatchRows rows{{}, length};
  for (int64_t row = 0; row < count; ++row) rows.rows.push_back(row);
  data::HostBatch batch;
  data::fill_batch(*source, data::Split::kTest, rows, count, batch);
  const at::Tensor tokens = at::tensor(batch.whole("tokens"), at::kLong).view({count, length});

  ModelForward request{plan, training::read_weights(scratch / "run", [](const std::string&) {}), {}};
  request.view = {{"layer1.mixer.scale2.weights", "logits"}, false};
  const ForwardResult result = forward_model(request, {{"tokens", tokens.to(at::kInt)}, {"mask", tokens > 0}});
  CHECK(names_of(result) == std::vector<std::string>{"logits", "layer1.mixer.scale2.weights"});
  CHECK(result.notes.empty());
  CHECK(find(result, "layer1.mixer.scale2.weights").sizes() == at::IntArrayRef({count, 1, length / 2, 4}));
  const at::Tensor logits = find(result, "logits");
  std::ifstream file(scratch / "run" / "predictions.csv");
  std::string line;
  std::getline(file, line);
  int64_t compared = 0;
  for (; std::getline(file, line); ++compared) {
    const std::vector<std::string_view> fields = split(line, ',');
    REQUIRE(fields.size() == 3 + 10);
    const int64_t row = std::stoll(std::string(fields[0]));
    for (int64_t c = 0; c < 10; ++c)
      CHECK(logits[row][c].item<double>() ==
            Approx(std::stod(std::string(fields[static_cast<size_t>(3 + c)]))).margin(1e-6));
  }
  CHECK(compared == count);
}

TEST_CASE("what a model reports are the parts of its sums") {
  const RunPlan plan = model_plan("mrs-softmax");
  ModelForward request{plan, weights_of(plan, at::kDouble), {}};
  request.view = {{"*"}, false};
  const TensorMap inputs = model_inputs(plan::padded_len(plan));
  const ForwardResult result = forward_model(request, inputs);
  const auto of = [&](const std::string& name) { return find(result, name); };
  at::Tensor x = of("embedding");
  for (const std::string layer : {"layer0", "layer1"}) {
    x = x + of(layer + ".mixer") + of(layer + ".ff");
    CHECK(support::max_difference(of(layer), x) < 1e-12);
    // Head 0 works at scale 1, head 1 on means of two tokens.
    const at::Tensor q = of(layer + ".mixer.q");
    CHECK(of(layer + ".mixer.scale1.q").equal(q.narrow(1, 0, 1)));
    CHECK(support::max_difference(of(layer + ".mixer.scale2.q"),
                                  pool_tokens(q.narrow(1, 1, 1), {inputs.at("mask")}, 2)) < 1e-12);
    CHECK(of(layer + ".mixer.scale2.weights").size(-1) == plan::padded_len(plan) / 2);
  }
  // mlpen's pooling: padded positions are zero and count.
  const at::Tensor valid = inputs.at("mask").unsqueeze(-1).to(at::kDouble);
  CHECK(support::max_difference(of("pooled"), (of("norm") * valid).mean(1)) < 1e-12);
}

TEST_CASE("F64 weights compute in double, F16 ones in F32") {
  const RunPlan plan = model_plan("linformer");
  const TensorMap inputs = model_inputs(plan::padded_len(plan));
  const auto logits = [&](at::ScalarType type) {
    return find(forward_model({plan, weights_of(plan, type), {}}, inputs), "logits");
  };
  const at::Tensor wide = logits(at::kDouble), narrow = logits(at::kFloat);
  CHECK(wide.scalar_type() == at::kDouble);
  CHECK(narrow.scalar_type() == at::kFloat);
  CHECK(logits(at::kHalf).scalar_type() == at::kFloat);
  CHECK(support::max_difference(wide, narrow.to(at::kDouble)) < 1e-5);
  CHECK_FALSE(wide.equal(narrow.to(at::kDouble)));
}

TEST_CASE("numbers at places, too, are computed with in the weights' type") {
  plan::PlanRequest words;
  words.task = "adding";
  words.model = "linear";
  words.layers.push_back({"test", {{"data.length", 12}, {"model.dim", 16}, {"model.head_dim", 8}}});
  const RunPlan plan = plan::resolve_plan(words);
  const at::Tensor values = InitStream(3).normal("values", {2, 12, 2}, 1).to(at::kDouble);
  const auto logits = [&](at::ScalarType type, double more) {
    return find(forward_model({plan, weights_of(plan, type), {}}, {{"values", values + more}}), "logits");
  };
  const at::Tensor wide = logits(at::kDouble, 0);
  CHECK(wide.scalar_type() == at::kDouble);
  CHECK(support::max_difference(wide, logits(at::kFloat, 0).to(at::kDouble)) < 1e-5);
  CHECK_FALSE(wide.equal(logits(at::kDouble, 1e-12)));  // which float rounds away
  const at::Tensor targets = at::tensor({0.1, 0.7}, at::kDouble);
  const ForwardResult judged =
      forward_model({plan, weights_of(plan, at::kDouble), {}}, {{"values", values}, {"targets", targets}});
  const double loss = (find(judged, "logits").squeeze(-1) - targets).square().mean().item<double>();
  CHECK(find(judged, "loss").item<double>() == Approx(loss).epsilon(1e-13));
}

TEST_CASE("labels give the mean cross entropy, and --grad its derivative") {
  const RunPlan plan = model_plan("softmax");
  TensorMap inputs = model_inputs(plan::padded_len(plan));
  inputs["labels"] = at::tensor({3, 7}, at::kInt);
  ModelForward request{plan, weights_of(plan, at::kDouble), {}};
  request.view = {{"layer0"}, true};
  const ForwardResult result = forward_model(request, inputs);
  const at::Tensor logits = find(result, "logits");
  const double loss = find(result, "loss").item<double>();
  CHECK(loss == Approx(-(at::log_softmax(logits, 1)[0][3] + at::log_softmax(logits, 1)[1][7]).item<double>() / 2));
  CHECK(find(result, "grad.layer0").sizes() == find(result, "layer0").sizes());
  CHECK(find(result, "grad.layer0").abs().max().item<double>() > 0);
  // Along its own gradient a parameter changes the loss by the gradient's square.
  request.view = {};
  for (const char* name : {"layer0.mixer.query.weight", "tokens", "classifier_out.bias"}) {
    INFO(name);
    const at::Tensor gradient = find(result, "grad." + std::string(name));
    const auto at_step = [&](double step) {
      ModelForward moved = request;
      moved.weights->tensors[name] = moved.weights->tensors.at(name) + step * gradient;
      return find(forward_model(moved, inputs), "loss").item<double>();
    };
    const double square = gradient.square().sum().item<double>(), step = 1e-5 / std::sqrt(square);
    CHECK((at_step(step) - at_step(-step)) / (2 * step) == Approx(square).epsilon(1e-5));
  }
  // A weighted sum of logits instead.
  inputs.erase("labels");
  inputs[kGradOutput] = support::random_tensor("g", {2, 10});
  request.view.gradients = true;
  const at::Tensor bias = find(forward_model(request, inputs), "grad.classifier_out.bias");
  CHECK(support::max_difference(bias, inputs[kGradOutput].sum(0)) < 1e-12);
}

TEST_CASE("what a model cannot take is refused, and what may surprise is said") {
  const RunPlan plan = model_plan("linear");
  const int64_t length = plan::padded_len(plan);
  const ModelForward request{plan, weights_of(plan, at::kFloat), {}};
  const auto refusal = [&](const std::function<void(TensorMap&)>& change) {
    TensorMap inputs = model_inputs(length);
    change(inputs);
    return message_of<UserError>([&] { (void)forward_model(request, inputs); });
  };
  const struct {
    std::function<void(TensorMap&)> change;
    std::vector<std::string> parts;
  } cases[] = {
      {[](auto& in) { in.erase("tokens"); }, {"lacks", "tokens"}},
      {[](auto& in) { in["tokens"] = in["tokens"].to(at::kFloat); }, {"tokens:", "I64", "F32"}},
      {[](auto& in) { in["tokens"] = in["tokens"] + 99; }, {"tokens:", "from 0 to", "found"}},
      {[](auto& in) { in["tokens"] = in["tokens"] - 1; }, {"tokens:", "from 0 to", "-1"}},
      {[&](auto& in) { in = model_inputs(length + 1); }, {"tokens:", "at most 32", "33"}},
      {[](auto& in) {
         in["labels"] = at::tensor({1, 10}, at::kLong);
       },
       {"labels:", "from 0 to 9", "10"}},
      {[](auto& in) {
         in["label"] = at::tensor({1, 1}, at::kLong);
       },
       {"'labels'?"}},
  };
  for (const auto& entry : cases) {
    const std::string message = refusal(entry.change);
    for (const std::string& part : entry.parts) {
      INFO(message << "\nexpected: " << part);
      CHECK(message.find(part) != std::string::npos);
    }
  }
  TensorMap unmasked = model_inputs(24);
  unmasked.erase("mask");
  const ForwardResult result = forward_model(request, unmasked);
  REQUIRE(result.notes.size() == 2);
  CHECK(result.notes[0].find("no mask") != std::string::npos);
  CHECK(result.notes[1].find("32") != std::string::npos);
}

TEST_CASE("a model without weights is that of the plan's seed, and is written") {
  const RunPlan plan = model_plan("softmax");
  const TensorMap inputs = model_inputs(plan::padded_len(plan));
  const ForwardResult drawn = forward_model({plan, std::nullopt, {}}, inputs);
  CHECK(find(drawn, "logits").equal(find(forward_model({plan, weights_of(plan, at::kFloat), {}}, inputs), "logits")));
  const auto model = plan::build_model(plan);
  for (const auto& [name, tensor] : models::state(*model)) CHECK(find(drawn, name).equal(tensor));
}

}  // namespace xformer::inspect
