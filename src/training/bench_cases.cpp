// Which rows a bench has: names, keys and combinations are checked here, before anything is built.
#include <fmt/ranges.h>

#include <algorithm>

#include "core/names.h"
#include "core/random.h"
#include "training/bench.h"

namespace xformer::training {

namespace {

// Lengths are exact here, whatever the family would pad real data to. --set may still ask for its own rule.
ValueLayer exact_lengths(const PlanParts& parts) {
  ValueLayer layer{"bench", Json::object()};
  for (const OptionInfo& option : parts.family->options)
    if (option.name == "length_rule") layer.values["model.length_rule"] = "exact";
  return layer;
}

bool has_option(const PlanParts& parts, const std::string& key) {
  const std::vector<OptionInfo> options = parts.attention.options();
  return std::any_of(options.begin(), options.end(),
                     [&](const OptionInfo& option) { return "attention." + option.name == key; });
}

// The layers without what belongs to the attention of another model. A key that none has stays, to be refused.
std::vector<ValueLayer> layers_for(const PlanParts& parts, const std::vector<PlanParts>& all,
                                   const std::vector<ValueLayer>& layers) {
  std::vector<ValueLayer> result;
  for (const ValueLayer& layer : layers) {
    result.push_back({layer.origin, Json::object()});
    for (const auto& [key, value] : layer.values.items()) {
      const bool another_has_it = key.starts_with("attention.") &&
                                  std::any_of(all.begin(), all.end(), [&, &name = key](const PlanParts& other) {
                                    return has_option(other, name);
                                  });
      if (!another_has_it || has_option(parts, key)) result.back().values[key] = value;
    }
  }
  return result;
}

}  // namespace

std::vector<size_t> bench_baselines(const BenchOptions& options) {
  if (options.against.empty()) return {0};
  std::vector<size_t> result;
  for (const std::string& name : options.against) {
    const auto same = [&](const std::string& model) { return canonical_name(model) == canonical_name(name); };
    const auto found = std::find_if(options.models.begin(), options.models.end(), same);
    XF_CHECK(found != options.models.end(), UserError, "--against: {}",
             unknown_name_message("model of --models", name, options.models));
    result.push_back(static_cast<size_t>(found - options.models.begin()));
  }
  return result;
}

std::vector<BenchCase> bench_cases(const BenchOptions& options) {
  XF_CHECK(!options.models.empty() && !options.models.front().empty(), UserError,
           "--models: expected one name at least, e.g. softmax,linformer (`xformer list` shows them)");
  XF_CHECK(options.mode == "train" || options.mode == "inference", UserError, "--mode: {}",
           unknown_name_message("mode", options.mode, {"train", "inference"}));
  for (const auto& [name, values] : {std::pair{"--lengths", options.lengths}, std::pair{"--batch", options.batches}}) {
    XF_CHECK(!values.empty(), UserError, "{}: expected one number at least", name);
    for (const int64_t value : values)
      XF_CHECK(value >= 1, UserError, "{}: expected whole numbers from 1, got {}", name, value);
  }
  XF_CHECK(options.steps >= 1 && options.warmup >= 0, UserError, "--steps counts from 1 and --warmup from 0");
  XF_CHECK(!options.paced || options.models.size() * options.lengths.size() * options.batches.size() == 1, UserError,
           "--paced takes one model, one length and one batch: steps that others ask for would mix them");
  static_cast<void>(bench_baselines(options));
  std::vector<PlanParts> parts;
  for (const std::string& model : options.models) parts.push_back(find_parts(options.task, model, options.protocol));
  std::vector<BenchCase> cases;
  for (const int64_t length : options.lengths) {
    for (const int64_t batch : options.batches) {
      for (size_t i = 0; i < parts.size(); ++i) {
        PlanRequest request;
        request.task = options.task;
        request.model = options.models[i];
        request.protocol = options.protocol;
        request.layers = {exact_lengths(parts[i]), {"--batch", {{"training.batch", batch}}}};
        for (const ValueLayer& layer : layers_for(parts[i], parts, options.layers)) request.layers.push_back(layer);
        const Json own = i < options.own.size() ? options.own[i] : Json::object();
        request.layers.push_back({"the model's own values", own});
        BenchCase one;
        one.plan = resolve_plan(request);
        one.length = length;
        one.batch = batch;
        one.own = own;
        one.label = one.plan.model;
        for (const auto& [key, value] : own.items())
          one.label += fmt::format(" {}={}", key.substr(key.find('.') + 1),
                                   value.is_string() ? value.get<std::string>() : value.dump());
        XF_CHECK(one.plan.options.values["training.batch"] == batch, UserError,
                 "training.batch: the batch of a bench is set with --batch");
        one.shape = planned_shape(one.plan);
        one.shape.max_len = length;
        one.request = model_request(one.plan, one.shape);
        const int64_t padded = parts[i].family->padded_len(one.request.model_options, length);
        XF_CHECK(padded == length, UserError, "--lengths {}: {} would pad it to {}", length, one.plan.model, padded);
        parts[i].family->check(one.request);
        cases.push_back(std::move(one));
      }
    }
  }
  return cases;
}

void take_valid_lengths(std::vector<BenchCase>& cases, const data::DataLocation& location,
                        const ProgressCallback& progress) {
  const RunPlan& plan = cases.front().plan;  // task and data options are the same in all
  const auto source = data::find_dataset(plan.task).open(plan.group("data"), location, progress);
  const int64_t examples = source->size(data::Split::kTrain);
  const data::DataShape& found = source->info().shape;
  XF_CHECK(found.vocabulary > 0 && found.sequences == 1, UserError,
           "--valid-from-data: {} has no single sequences of tokens", plan.task);
  for (BenchCase& one : cases) {
    XF_CHECK(one.batch <= examples, DataError,
             "--valid-from-data: a batch of {} needs as many training examples, {} has {}", one.batch, plan.task,
             examples);
    one.valid_lengths.clear();
    for (int64_t row = 0; row < one.batch; ++row) {
      const data::Example example = source->read(data::Split::kTrain, row);
      one.valid_lengths.push_back(std::min(data::example_length(example, found), one.length));
    }
  }
}

data::HostBatch bench_batch(const BenchCase& wanted) {
  const data::DataShape& shape = wanted.shape;
  data::HostBatch batch;
  batch.batch = batch.filled = wanted.batch;
  batch.padded_len = wanted.length;
  Stream numbers(1);
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(bound)));
  };
  const int64_t places = wanted.batch * shape.sequences * wanted.length;
  if (shape.vocabulary > 0)
    for (int64_t i = 0; i < places; ++i) batch.tokens.push_back(1 + below(shape.vocabulary - 1));
  else
    for (int64_t i = 0; i < places * shape.width; ++i) batch.values.push_back(static_cast<float>(below(1000)) / 1000);
  batch.key_valid.assign(static_cast<size_t>(places), 1);
  for (size_t row = 0; row < wanted.valid_lengths.size(); ++row) {
    const auto begin = static_cast<int64_t>(row) * wanted.length + wanted.valid_lengths[row];
    const int64_t padding = wanted.length - wanted.valid_lengths[row];
    std::fill_n(batch.tokens.begin() + begin, padding, 0);
    std::fill_n(batch.key_valid.begin() + begin, padding, 0);
  }
  for (int64_t row = 0; row < wanted.batch; ++row) {
    batch.row_valid.push_back(1);
    batch.labels.push_back(shape.target == data::Target::kNumber ? 0 : below(shape.classes));
    batch.targets.push_back(0.5F);
    batch.indices.push_back(row);
    if (!shape.mixed) continue;
    batch.second_labels.push_back(below(shape.classes));
    batch.shares.push_back(0.5F);
  }
  return batch;
}

}  // namespace xformer::training
