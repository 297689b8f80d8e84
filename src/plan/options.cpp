#include "plan/options.h"

#include <algorithm>
#include <cmath>

#include "attention/own_file.h"
#include "data/limited_source.h"
#include "plan/task_defaults.h"
#include "tasks/task.h"

namespace xformer::plan {

namespace {

// Of --fast.
constexpr int64_t kFastSteps = 5, kFastBatches = 2;

}  // namespace

ModelWords read_model(const std::string& model, const std::string& default_family) {
  static constexpr std::string_view kMrs = "mrs-";
  const auto& families = models::all_families();
  ModelWords words;
  const size_t slash = model.substr(0, attention::own_file_at(model)).find('/');  // not those of a path
  std::string family = slash == std::string::npos ? default_family : model.substr(0, slash);
  words.attention = slash == std::string::npos ? model : model.substr(slash + 1);
  const std::string word = slash == std::string::npos ? canonical_name(model) : "";
  if (families.find(word) != nullptr) {
    family = words.called = word;  // a family alone takes softmax
    words.attention = "softmax";
  } else if (word.starts_with(kMrs) && families.find(word.substr(kMrs.size())) != nullptr) {
    family = word.substr(kMrs.size());  // mrs-ft, as its paper calls the family with multi-resolution heads
    words.attention = "mrs-softmax";
    words.called = word;
    XF_CHECK(families.get(family).takes_attention, UserError,
             "--model {}: the family {} has no attention to give multi-resolution heads", model, family);
  }
  words.family = &families.get(family);
  if (words.family->takes_attention) return words;
  XF_CHECK(slash == std::string::npos || words.attention == "none", UserError,
           "--model {}: the family {} has no attention to choose; say {}", model, words.family->name,
           words.family->name);
  words.attention = "none";
  return words;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names = attention::all_names();
  for (const std::string& name : models::all_families().names()) {
    names.push_back(name);
    if (models::all_families().get(name).takes_attention) names.push_back("mrs-" + name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

PlanParts find_parts(const std::string& task, const std::string& model, const std::string& protocol) {
  PlanParts parts;
  parts.dataset = &data::find_dataset(task);
  parts.protocol = &find_protocol(parts.dataset->name, protocol);
  const ModelWords words = read_model(model, parts.dataset->default_family);
  parts.family = words.family;
  parts.called = words.called;
  try {
    parts.attention = attention::resolve(words.attention);
  } catch (const UserError&) {
    // A word that is no attention's near miss may be a family's ("mrs-diet").
    const std::vector<std::string> known = model_names();
    if (model.find('/') != std::string::npos || nearest_name(model, known).empty() ||
        nearest_name(model, known) == nearest_name(model, attention::all_names()))
      throw;
    throw UserError(unknown_name_message("model", model, known));
  }
  return parts;
}

std::vector<OptionGroup> option_groups(const PlanParts& parts) {
  return {{"data", parts.dataset->name, parts.dataset->options},
          {"model", parts.family->name, parts.family->options},
          {"attention", parts.attention.name, parts.attention.options()},
          {"training", "training", training_schema().options()},
          {"eval", "evaluation", eval_schema().options()}};
}

namespace {

// " Its lengths are data.min_length and data.max_length.", or "" where there are none.
std::string length_options(const data::DatasetDescriptor& dataset) {
  std::vector<std::string> names;
  for (const OptionInfo& option : dataset.options)
    if (option.name.ends_with("length")) names.push_back("data." + option.name);
  return names.empty() ? "" : fmt::format(" Its lengths are {}.", fmt::join(names, " and "));
}

bool has_key(const std::vector<OptionGroup>& groups, const std::string& key) {
  for (const OptionGroup& group : groups)
    for (const OptionInfo& option : group.options)
      if (group.prefix + "." + option.name == key) return true;
  return false;
}

RunPlan named_plan(const PlanParts& parts, int64_t seed) {
  RunPlan plan;
  plan.task = parts.dataset->name;
  plan.protocol = parts.protocol->name;
  plan.family = parts.family->name;
  plan.attention = parts.attention.name;
  if (!parts.family->takes_attention) plan.model = plan.family;
  else plan.model = plan.family == parts.dataset->default_family ? plan.attention : plan.family + "/" + plan.attention;
  plan.called = parts.called;
  plan.seed = seed;
  return plan;
}

// Of an objective that the data has.
void check_objective(const RunPlan& plan, const PlanParts& parts, const std::string& objective) {
  if (objective == "task") return;
  XF_CHECK(parts.family->pretrains, UserError,
           "data.objective={}: it asks at every place, and models of the {} family answer once for an example; take "
           "encoder/{}",
           objective, parts.family->name, parts.family->takes_attention ? parts.attention.name : "softmax");
  XF_CHECK(
      objective != "causal" || plan.group("model").value("causal", false), UserError,
      "data.objective=causal: the next id is to be told at every place, and a bidirectional model has it before its "
      "eyes; set model.causal=true, here and where the task itself is trained, or take data.objective=masked");
}

void check_combinations(const RunPlan& plan, const PlanParts& parts) {
  const TrainingOptions training = training_schema().read(plan.group("training"));
  XF_CHECK(training.micro_batch <= training.batch, UserError,
           "training.micro_batch: expected at most the batch of {}, got {}", training.batch, training.micro_batch);
  XF_CHECK(training.micro_batch == 0 || training.micro_batch == training.batch ||
               plan.group("model").value("norm", "") != "batch",
           UserError,
           "training.micro_batch: model.norm=batch takes its mean and variance over the whole batch of {}, parts of it "
           "have others; expected {} or 0, all at once, got {}",
           training.batch, training.batch, training.micro_batch);
  const data::BatchingOptions batching = data::batching_of(plan.group("data"));
  const bool in_blocks = batching.objective != "task" || plan.group("model").value("loss_block", int64_t{0}) > 0;
  XF_CHECK(training.label_smoothing == 0 || !in_blocks, UserError,
           "training.label_smoothing: losses made in blocks (model.loss_block, data.objective) are of the label alone; "
           "expected 0, got {:g}",
           training.label_smoothing);
  // rsqrt rises and falls by itself: the official Retrieval ends inside its warm-up.
  XF_CHECK(training.warmup <= training.steps || training.epochs > 0 || training.schedule == "rsqrt", UserError,
           "training.warmup: expected at most training.steps = {}, got {}", training.steps, training.warmup);
  XF_CHECK(training.warmup_epochs <= training.epochs, UserError,
           "training.warmup_epochs: expected at most training.epochs = {}, got {}", training.epochs,
           training.warmup_epochs);
  XF_CHECK(batching.repeats == 1 || training.buckets == 1, UserError,
           "data.repeats: repeated examples come in one order of all lengths; expected training.buckets=1, got {}",
           training.buckets);
  const bool hash = training.init_sha256.size() == 64 &&
                    training.init_sha256.find_first_not_of("0123456789abcdef") == std::string::npos;
  XF_CHECK(hash || training.init_sha256.empty(), UserError,
           "training.init_sha256: expected 64 hexadecimal digits, got '{}'; --init-from FILE sets it",
           training.init_sha256);
  XF_CHECK(training.reinit.empty() || hash, UserError,
           "training.reinit: there is nothing to keep '{}' from, the plan begins with no weights (--init-from FILE)",
           training.reinit);
  XF_CHECK(training.extend.empty() || hash, UserError,
           "training.extend: there are no rows to copy into '{}', the plan begins with no weights (--init-from FILE)",
           training.extend);
  parts.dataset->check_options(plan.group("data"));
  const data::DataShape shape = planned_shape(plan);
  check_objective(plan, parts, batching.objective);
  for (const data::Shift& shift : shifts_of(plan)) data::check_shift(shift, shape);
  parts.family->check(model_request(plan, shape));
}

// Before any option is read: a protocol's values are those of its task's own family.
void check_family(const PlanParts& parts) {
  const bool places = models::all_families().get(parts.dataset->default_family).per_position;
  XF_CHECK(places == parts.family->per_position, UserError,
           "{} asks for {}, and models of the {} family give {}; take {}/{}", parts.dataset->name,
           places ? "an answer at every place" : "one answer for an example", parts.family->name,
           places ? "one for an example" : "one at every place", parts.dataset->default_family,
           parts.family->takes_attention ? parts.attention.name : "softmax");
  if (!parts.family->causal) return;
  Json options = Json::object();
  for (const OptionInfo& option : parts.dataset->options) options[option.name] = option.fallback;
  const bool causal = tasks::make_task(parts.dataset->shape(options))->output().causal;
  XF_CHECK(*parts.family->causal == causal, UserError, "the {} family sees {}, and {} lets {}; take {}/{}",
           parts.family->name, causal ? "later places" : "no later place", parts.dataset->name,
           causal ? "no place see them" : "every place see all others", parts.dataset->default_family,
           parts.attention.name);
}

// Whether training.steps was asked for nearer than the epochs that would outlast it. Both from one place is a
// UserError, but of a whole plan, which has every option: there epochs decide.
bool steps_over_epochs(const ResolvedOptions& options, const std::vector<ValueLayer>& layers) {
  const Origin &steps = options.origins.at("training.steps"), &epochs = options.origins.at("training.epochs");
  if (options.values["training.epochs"] == 0 || steps.is_preset()) return false;
  if (epochs.is_preset()) return true;
  const auto nearest = std::find_if(layers.rbegin(), layers.rend(), [&](const ValueLayer& layer) {
    return layer.origin.text == steps.text || layer.origin.text == epochs.text;
  });
  if (steps.text != epochs.text) return nearest->origin.text == steps.text;
  const auto& known = training_schema().options();
  const bool whole_plan = std::all_of(known.begin(), known.end(), [&](const OptionInfo& option) {
    return option.neutral || nearest->values.contains("training." + option.name);
  });
  XF_CHECK(whole_plan, UserError,
           "training.steps={} and training.epochs={} (from {}) both say how long training is; give one of them",
           options.values["training.steps"].dump(), options.values["training.epochs"].dump(), steps.text);
  return false;
}

}  // namespace

std::vector<data::Shift> shifts_of(const RunPlan& plan) {
  return data::parse_shifts(eval_schema().read(plan.group("eval")).shifts, "eval.shifts");
}

std::vector<ValueLayer> preset_layers(const PlanParts& parts) {
  const auto groups = option_groups(parts);
  // A protocol speaks of its task's own family, and of mrs- forms: another model takes what concerns it.
  ValueLayer protocol{{OriginKind::kProtocol, "protocol " + parts.protocol->name}};
  for (const auto& [key, value] : parts.protocol->values.items())
    if (!(key.starts_with("model.") || key.starts_with("attention.")) || has_key(groups, key))
      protocol.values[key] = value;
  std::vector<ValueLayer> layers{task_default_layer(parts.attention, parts.dataset->name), protocol};
  ValueLayer own{{OriginKind::kProtocol, parts.attention.name + " in any task"}};
  for (const auto& [option, value] : parts.attention.base->model_defaults.items())
    if (has_key(groups, "model." + option)) own.values["model." + option] = value;
  if (!own.values.empty()) layers.push_back(own);
  return layers;
}

RunPlan resolve_plan(const PlanRequest& request) {
  const PlanParts parts = find_parts(request.task, request.model, request.protocol);
  check_family(parts);
  XF_CHECK(
      request.length == 0 || parts.dataset->accepts_length, UserError,
      "--length sets the length of byte text and of generated sequences; {} has none to choose.{} (`xformer describe "
      "{}` shows all options)",
      parts.dataset->name, length_options(*parts.dataset), parts.dataset->name);
  RunPlan plan = named_plan(parts, request.seed);
  const auto groups = option_groups(parts);
  std::vector<ValueLayer> layers = preset_layers(parts);
  layers.insert(layers.end(), request.layers.begin(), request.layers.end());
  if (request.length > 0) layers.push_back({"--length", {{"data.length", request.length}}});
  plan.options = resolve_options(groups, layers);
  const auto refuse_another_length = [&](const std::string& asked) {
    for (const char* key : {"training.steps", "training.epochs"}) {
      const std::string& origin = plan.options.origins[key].text;
      XF_CHECK(!origin.starts_with("--"), UserError,
               "{} and {}={} (from {}) both say how long training is; give one of them", asked, key,
               plan.options.values[key].dump(), origin);
    }
  };
  int64_t asked_steps = request.steps;
  Origin asker = request.steps > 0 ? "--steps" : "--fast";
  if (request.fast) {
    const auto number = [&](const char* key) { return plan.options.values[key].get<int64_t>(); };
    const int64_t batch = number("eval.batch") > 0 ? number("eval.batch") : number("training.batch");
    if (asked_steps == 0) asked_steps = kFastSteps;
    std::string limit = plan.options.values["data.limit"];
    for (const data::Split split : {data::Split::kDev, data::Split::kTest})
      if (!data::is_limited(limit, split))
        limit += fmt::format("{}{}={}", limit.empty() ? "" : ",", data::split_name(split), kFastBatches * batch);
    layers.push_back({"--fast", {{"data.limit", limit}}});
    plan.options = resolve_options(groups, layers);
  }
  if (asked_steps > 0) {
    refuse_another_length(request.steps > 0 ? fmt::format("--steps {}", asked_steps) : "--fast");
  } else if (request.epochs == 0 && steps_over_epochs(plan.options, layers)) {
    asked_steps = plan.options.values["training.steps"];
    asker = plan.options.origins["training.steps"];
  }
  if (asked_steps > 0) {
    // The schedule is shortened or stretched as a whole: its warm-up keeps its share, unless it was set itself.
    ValueLayer steps{asker, {{"training.steps", asked_steps}, {"training.epochs", 0}}};
    const double before = plan.options.values["training.steps"].get<double>();
    const double warmup = plan.options.values["training.warmup"].get<double>();
    if (warmup > 0 && plan.options.origins["training.warmup"].is_preset())
      steps.values["training.warmup"] = std::llround(warmup * static_cast<double>(asked_steps) / before);
    const auto number = [&](const char* key) { return plan.options.values[key].get<double>(); };
    if (const double epochs = number("training.epochs"), rising = number("training.warmup_epochs");
        rising > 0 && rising <= epochs) {
      steps.values["training.warmup"] = std::llround(static_cast<double>(asked_steps) * rising / epochs);
      steps.values["training.warmup_epochs"] = 0;
    }
    layers.push_back(steps);
    plan.options = resolve_options(groups, layers);
  }
  if (request.epochs > 0) {
    XF_CHECK(asked_steps == 0, UserError, "{} and --epochs: one of them says how long a run is", asker.text);
    refuse_another_length(fmt::format("--epochs {}", request.epochs));
    ValueLayer epochs{"--epochs", {{"training.epochs", request.epochs}}};
    const auto share = [&](const char* part, const char* whole) {
      return plan.options.values[part].get<double>() / std::max(plan.options.values[whole].get<double>(), 1.0);
    };
    const bool counted = plan.options.values["training.epochs"] != 0;
    const double warmup =
        counted ? share("training.warmup_epochs", "training.epochs") : share("training.warmup", "training.steps");
    const char* const key = counted ? "training.warmup_epochs" : "training.warmup";
    if (warmup > 0 && plan.options.origins[key].is_preset()) {
      epochs.values["training.warmup_epochs"] =
          std::llround(std::min(warmup, 1.0) * static_cast<double>(request.epochs));
      if (!counted) epochs.values["training.warmup"] = 0;
    }
    layers.push_back(epochs);
    plan.options = resolve_options(groups, layers);
  }
  check_combinations(plan, parts);
  return plan;
}

void suit_device(RunPlan& plan, bool on_cuda) {
  Json& precision = plan.options.values["training.precision"];
  Origin& origin = plan.options.origins["training.precision"];
  if (on_cuda || !origin.is_preset() || (precision != "fp16" && precision != "tf32")) return;
  origin.text = fmt::format("{}, whose {} is for CUDA", origin.text, precision.get<std::string>());
  precision = "fp32";
}

std::string precision_warning(const RunPlan& plan, bool on_cuda) {
  if (on_cuda || plan.options.values["training.precision"] != "fp16") return "";
  return fmt::format(
      "fp16 (from {}) is only imitated on a CPU, several times slower than fp32; --precision fp32 is fast there, and "
      "bf16 where the processor has it",
      plan.options.origins.at("training.precision").text);
}

std::string epochs_warning(const RunPlan& plan) {
  const Json& values = plan.options.values;
  const auto& origins = plan.options.origins;
  for (const auto& [steps, epochs] :
       {std::pair{"training.eval_every", "training.eval_epochs"}, {"training.warmup", "training.warmup_epochs"}})
    if (values[epochs] != 0 && origins.at(epochs).is_preset() && origins.at(steps).text.starts_with("--") &&
        origins.at(steps).text != "--steps" && origins.at(steps).text != "--fast")
      return fmt::format("{}={} (from {}) says nothing where {}={} (from {}) counts epochs; {}=0 lets it", steps,
                         values[steps].dump(), origins.at(steps).text, epochs, values[epochs].dump(),
                         origins.at(epochs).text, epochs);
  return "";
}

std::string depth_warning(const RunPlan& plan) {
  const Json model = plan.group("model");
  if (!model.contains("layers")) return "";
  return attention::depth_warning(attention::resolve(plan.attention), plan.group("attention"), model["layers"]);
}

RunPlan stored_plan(const Json& plan) {
  for (const char* key : {"task", "model", "protocol", "seed"})
    XF_CHECK(plan.contains(key), DataError, "a stored plan lacks '{}'", key);
  const PlanParts parts = find_parts(plan["task"], plan.value("name", plan["model"]), plan["protocol"]);
  RunPlan result = named_plan(parts, plan["seed"]);
  ValueLayer values{{OriginKind::kStored, "stored plan"}};
  for (const auto& [key, value] : plan.items())
    if (key.find('.') != std::string::npos) values.values[key] = value;
  result.options = resolve_options(option_groups(parts), {values});
  return result;
}

data::DataShape planned_shape(const RunPlan& plan) { return data::find_dataset(plan.task).shape(plan.group("data")); }

models::ModelRequest model_request(const RunPlan& plan, const data::DataShape& shape) {
  const PlanParts parts = find_parts(plan.task, plan.family + "/" + plan.attention, plan.protocol);
  models::ModelRequest request;
  request.model_options = plan.group("model");
  const tasks::OutputSpec output = tasks::make_task(shape)->output();
  XF_ASSERT(output.per_position == parts.family->per_position || (output.per_position && parts.family->pretrains),
            "{} is answered by another kind of family than {}", plan.task, parts.family->name);
  request.input = {shape.max_len, shape.vocabulary, shape.sequences,
                   shape.width,   shape.categories, data::image_columns(shape)};
  if (const int64_t segments = data::index_of(shape.further, "segments"); segments >= 0)
    request.input.segments = shape.further[static_cast<size_t>(segments)].range;
  request.input.written = output.written;
  request.input.masks = shape.masks;
  request.outputs = output.columns;
  request.causal = output.causal || request.model_options.value("causal", false);
  request.per_position = output.per_position;
  request.attention = parts.attention;
  request.attention_options = plan.group("attention");
  request.seed = static_cast<uint64_t>(plan.seed);
  return request;
}

std::shared_ptr<models::Model> build_model(const RunPlan& plan, const data::DataShape& shape) {
  const models::ModelRequest request = model_request(plan, shape);
  const models::FamilyDescriptor& family = models::all_families().get(plan.family);
  family.check(request);  // against what the data really is
  return family.build(request);
}

int64_t padded_len(const RunPlan& plan, const data::DataShape& shape) {
  return models::all_families().get(plan.family).padded_len(plan.group("model"), shape.max_len);
}

models::ModelRequest model_request(const RunPlan& plan) { return model_request(plan, planned_shape(plan)); }
std::shared_ptr<models::Model> build_model(const RunPlan& plan) { return build_model(plan, planned_shape(plan)); }
int64_t padded_len(const RunPlan& plan) { return padded_len(plan, planned_shape(plan)); }

}  // namespace xformer::plan
