// Which rows a bench has: names, keys and combinations are checked here, before anything is built.
#include <fmt/ranges.h>

#include <algorithm>

#include "core/names.h"
#include "core/option_names.h"
#include "core/random.h"
#include "measure/bench.h"

namespace xformer::measure {

namespace {

// Lengths are exact here, whatever the family would pad real data to. --set may still ask for its own rule.
ValueLayer exact_lengths(const plan::PlanParts& parts) {
  ValueLayer layer{"bench", Json::object()};
  for (const OptionInfo& option : parts.family->options)
    if (option.name == "length_rule") layer.values["model.length_rule"] = "exact";
  return layer;
}

bool has_option(const plan::PlanParts& parts, const std::string& key) {
  const std::vector<OptionInfo> options = parts.attention.options();
  return std::any_of(options.begin(), options.end(),
                     [&](const OptionInfo& option) { return "attention." + option.name == key; });
}

// The layers without what belongs to the attention of another model. A key that none has stays, to be refused.
std::vector<ValueLayer> layers_for(const plan::PlanParts& parts, const std::vector<plan::PlanParts>& all,
                                   const std::vector<ValueLayer>& layers) {
  std::vector<ValueLayer> result;
  for (const ValueLayer& layer : layers) {
    result.push_back({layer.origin, Json::object()});
    for (const auto& [key, value] : layer.values.items()) {
      const bool another_has_it = key.starts_with("attention.") &&
                                  std::any_of(all.begin(), all.end(), [&, &name = key](const plan::PlanParts& other) {
                                    return has_option(other, name);
                                  });
      if (!another_has_it || has_option(parts, key)) result.back().values[key] = value;
    }
  }
  return result;
}

// Sizes of a row; width 0 and an empty precision are the plan's own.
struct Sizes {
  int64_t length = 0, batch = 0, width = 0;
  std::string precision;
};

// Every option of the plan that grows with the width, in the proportion that it has at the plan's own.
ValueLayer width_layer(const RunPlan& plan, int64_t width) {
  const Json& values = plan.options.values;
  XF_CHECK(values.contains("model.dim"), UserError, "--widths: {} has no model.dim", plan.model);
  const int64_t own = values["model.dim"];
  ValueLayer layer{"--widths", {{"model.dim", width}}};
  for (const char* key : {"model.head_dim", "model.ff_dim", "model.classifier_dim", "model.hidden"}) {
    if (!values.contains(key)) continue;
    const int64_t scaled = values[key].get<int64_t>() * width;
    XF_CHECK(scaled % own == 0, UserError,
             "--widths {}: {} of {} at model.dim {} grows with it, and would be no whole number", width, key,
             values[key].dump(), own);
    layer.values[key] = scaled / own;
  }
  return layer;
}

void check_options(const BenchOptions& options) {
  XF_CHECK(!options.models.empty() && !options.models.front().empty(), UserError,
           "--models: expected one name at least, e.g. softmax,linformer (`xformer list` shows them)");
  XF_CHECK(options.mode == "train" || options.mode == "inference", UserError, "--mode: {}",
           unknown_name_message("mode", options.mode, {"train", "inference"}));
  for (const auto& [name, values] : {std::pair{"--lengths", options.lengths}, std::pair{"--batch", options.batches},
                                     std::pair{"--widths", options.widths}})
    for (const int64_t value : values)
      XF_CHECK(value >= 1, UserError, "{}: expected whole numbers from 1, got {}", name, value);
  for (const auto& [name, values] : {std::pair{"--lengths", options.lengths}, std::pair{"--batch", options.batches}})
    XF_CHECK(!values.empty(), UserError, "{}: expected one number at least", name);
  XF_CHECK(options.steps >= 1 && options.warmup >= 0, UserError, "--steps counts from 1 and --warmup from 0");
  const size_t rows = options.models.size() * options.lengths.size() * options.batches.size() *
                      std::max<size_t>(options.widths.size(), 1) * std::max<size_t>(options.precisions.size(), 1);
  XF_CHECK(!options.paced || rows == 1, UserError,
           "--paced takes one row, that is one model, length, batch, width and precision; here are {}", rows);
  static_cast<void>(bench_baselines(options));
}

// Model i of the options, whose parts are `all`.
BenchCase bench_case(const BenchOptions& options, const std::vector<plan::PlanParts>& all, size_t i,
                     const Sizes& sizes) {
  const plan::PlanParts& parts = all[i];
  plan::PlanRequest request;
  request.task = options.task;
  request.model = options.models[i];
  request.protocol = options.protocol;
  request.layers = {exact_lengths(parts), {"--batch", {{"training.batch", sizes.batch}}}};
  for (const ValueLayer& layer : layers_for(parts, all, options.layers)) request.layers.push_back(layer);
  const Json own = i < options.own.size() ? options.own[i] : Json::object();
  request.layers.push_back({fmt::format("values of {} alone", options.models[i]), own});
  for (const ValueLayer& layer : request.layers) {
    XF_CHECK(sizes.width == 0 || !layer.values.contains("model.dim"), UserError,
             "model.dim: the widths of a bench are set with --widths or with --set, not with both");
    XF_CHECK(sizes.precision.empty() || !layer.values.contains("training.precision"), UserError,
             "training.precision: it is set with --precision or with --set, not with both");
  }
  if (!sizes.precision.empty()) request.layers.push_back({"--precision", {{"training.precision", sizes.precision}}});
  if (sizes.width > 0) request.layers.push_back(width_layer(plan::resolve_plan(request), sizes.width));

  BenchCase one;
  one.plan = plan::resolve_plan(request);
  const Json& values = one.plan.options.values;
  XF_CHECK(values["training.batch"] == sizes.batch, UserError,
           "training.batch: the batch of a bench is set with --batch");
  one.length = sizes.length;
  one.batch = sizes.batch;
  one.width = values.value("model.dim", int64_t{0});
  one.precision = values["training.precision"];
  one.own = own;
  one.name = one.plan.name();
  for (const auto& [key, value] : own.items())
    one.name += fmt::format(" {}={}", key.substr(key.find('.') + 1), value_word(value));
  one.label = one.name;
  if (options.widths.size() > 1) one.label += fmt::format(" dim={}", one.width);
  if (options.precisions.size() > 1) one.label += " " + one.precision;
  one.shape = plan::planned_shape(one.plan);
  one.shape.max_len = sizes.length;
  one.request = plan::model_request(one.plan, one.shape);
  const int64_t padded = parts.family->padded_len(one.request.model_options, sizes.length);
  XF_CHECK(padded == sizes.length, UserError, "--lengths {}: {} would pad it to {}", sizes.length, one.plan.model,
           padded);
  parts.family->check(one.request);
  return one;
}

}  // namespace

std::vector<std::string> suit_device(std::span<BenchCase> cases, const at::Device& device) {
  std::vector<std::string> warnings;
  for (BenchCase& one : cases) {
    plan::suit_device(one.plan, device.is_cuda());
    one.precision = one.plan.options.values["training.precision"];
    const std::string warning = plan::precision_warning(one.plan, device.is_cuda());
    if (!warning.empty() && std::find(warnings.begin(), warnings.end(), warning) == warnings.end())
      warnings.push_back(warning);
  }
  return warnings;
}

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
  check_options(options);
  std::vector<plan::PlanParts> parts;
  for (const std::string& model : options.models)
    parts.push_back(plan::find_parts(options.task, model, options.protocol));
  const std::vector<int64_t> widths = options.widths.empty() ? std::vector<int64_t>{0} : options.widths;
  const std::vector<std::string> precisions =
      options.precisions.empty() ? std::vector<std::string>{""} : options.precisions;
  std::vector<BenchCase> cases;
  for (const int64_t length : options.lengths)
    for (const int64_t batch : options.batches)
      for (const int64_t width : widths)
        for (const std::string& precision : precisions)
          for (size_t i = 0; i < parts.size(); ++i)
            cases.push_back(bench_case(options, parts, i, {length, batch, width, precision}));
  return cases;
}

void take_valid_lengths(std::span<BenchCase> cases, const data::DataLocation& location,
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

std::string bench_input(const BenchCase& wanted) {
  return wanted.valid_lengths.empty() ? "random tokens, every position valid"
                                      : "random tokens, as many valid as in the first training examples";
}

data::HostBatch bench_batch(const BenchCase& wanted) {
  Stream numbers(1);
  data::HostBatch batch = data::random_batch(wanted.shape, wanted.batch, wanted.length, numbers);
  for (size_t row = 0; row < wanted.valid_lengths.size(); ++row) {
    const auto begin = static_cast<int64_t>(row) * wanted.length + wanted.valid_lengths[row];
    const int64_t padding = wanted.length - wanted.valid_lengths[row];
    std::fill_n(batch.whole("tokens").begin() + begin, padding, 0);
    std::fill_n(batch.key_valid.begin() + begin, padding, 0);
  }
  return batch;
}

}  // namespace xformer::measure
