#include "training/weights.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.h"
#include "core/hash.h"
#include "core/names.h"
#include "core/run_record.h"
#include "core/text.h"
#include "data/datasets.h"
#include "plan/options.h"

namespace xformer::training {

namespace {

using Names = std::vector<std::string>;

// The selected weights of a checkpoint: the best so far, else the last.
Weights weights_of(const Checkpoint& checkpoint, const std::string& file) {
  const auto best = checkpoint.tensors.lower_bound("best.");
  const bool has_best = best != checkpoint.tensors.end() && best->first.starts_with("best.");
  const std::string prefix = has_best ? "best." : "model.";
  Weights result;
  result.source =
      fmt::format("{} ({} weights, checkpoint of step {})", file, has_best ? "best" : "last", checkpoint.state.step);
  result.metadata = {{"step", std::to_string(checkpoint.state.step)}};
  for (const auto& [name, tensor] : checkpoint.tensors)
    if (name.starts_with(prefix)) result.tensors.emplace(name.substr(prefix.size()), tensor);
  return result;
}

Weights weights_in_file(const Path& path) {
  TensorFile file = read_tensor_file(path);
  if (is_checkpoint(file)) return weights_of(as_checkpoint(std::move(file), path), path.string());
  return {std::move(file.tensors), path.string(), std::move(file.metadata), ""};
}

Weights weights_in_run(const Path& run, const Say& say) {
  if (std::filesystem::exists(run / "model.safetensors")) return weights_in_file(run / "model.safetensors");
  bool damaged = false;
  const auto checkpoint = newest_checkpoint(run, [&](const std::string& warning) {
    damaged = true;
    say(warning);
  });
  XF_CHECK(checkpoint || !damaged, DataError, "{}: no checkpoint is whole", run.string());
  XF_CHECK(checkpoint.has_value(), UserError, "{} holds neither model.safetensors nor a whole checkpoint yet",
           run.string());
  Weights result = weights_of(*checkpoint, run.string());
  const bool finished = read_run_record(run / "record.json").completed();
  say(fmt::format("{}: its weights are {}",
                  finished ? "the run is finished, but its model.safetensors is gone" : "the run is not finished",
                  result.source));
  return result;
}

// Why a tensor of the file cannot be put into one of the model; "" when it can.
std::string misfit(const at::Tensor& model, const at::Tensor& file) {
  if (model.sizes() != file.sizes())
    return fmt::format("[{}] in the model, [{}] in the file", fmt::join(model.sizes().vec(), ", "),
                       fmt::join(file.sizes().vec(), ", "));
  const at::ScalarType wanted = model.scalar_type(), found = file.scalar_type();
  if (wanted == found || (at::isFloatingType(wanted) && at::isFloatingType(found))) return "";
  return fmt::format("type {} in the model, {} in the file", at::toString(wanted), at::toString(found));
}

// How the tensors of a model, but those to be left alone, stand to those of a file.
struct Comparison {
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;  // into, from
  Names taken, extended, missing, different, unused;     // those extended are taken, too
};

// The rows of a smaller tensor, again and again until there are as many as in `model`; undefined where that cannot be.
at::Tensor with_more_rows(const at::Tensor& model, const at::Tensor& file) {
  if (model.dim() == 0 || file.dim() != model.dim() || file.size(0) == 0 || file.size(0) >= model.size(0) ||
      model.sizes().slice(1) != file.sizes().slice(1))
    return {};
  return file.index_select(0, at::arange(model.size(0)).remainder(file.size(0)));
}

Comparison compare(const models::Model& model, const Weights& weights, const Names& left_alone = {},
                   const Names& to_extend = {}) {
  Comparison result;
  std::map<std::string, at::Tensor> rest = weights.tensors;
  for (const auto& [name, tensor] : models::state(model)) {
    auto found = rest.extract(name);
    if (std::find(left_alone.begin(), left_alone.end(), name) != left_alone.end()) continue;
    if (!found.empty() && std::find(to_extend.begin(), to_extend.end(), name) != to_extend.end())
      if (const at::Tensor longer = with_more_rows(tensor, found.mapped()); longer.defined()) {
        result.extended.push_back(name);
        found.mapped() = longer;
      }
    if (found.empty()) {
      result.missing.push_back(name);
    } else if (const std::string reason = misfit(tensor, found.mapped()); !reason.empty()) {
      result.different.push_back(fmt::format("{} ({})", name, reason));
    } else {
      result.taken.push_back(name);
      result.pairs.emplace_back(tensor, found.mapped());
    }
  }
  for (const auto& [name, tensor] : rest) result.unused.push_back(name);
  return result;
}

void copy_pairs(const Comparison& comparison) {
  const at::NoGradGuard no_grad;
  for (const auto& [into, from] : comparison.pairs) at::Tensor(into).copy_(from);
}

Names patterns_of(const std::string& text) {
  Names result;
  for (const std::string_view pattern : split(text, ','))
    if (!trim(pattern).empty()) result.emplace_back(trim(pattern));
  return result;
}

template <class NamedTensors>
Names names_of(const NamedTensors& tensors) {
  Names result;
  for (const auto& [name, tensor] : tensors) result.push_back(name);
  return result;
}

// Frozen parameters in words, "" when the plan freezes none.
std::string freeze(models::Model& model, const plan::TrainingOptions& options) {
  const auto parameters = models::trainable(model);
  const Names names = matching_names("training.freeze", "parameter", patterns_of(options.freeze), names_of(parameters));
  if (names.empty()) return "";
  XF_CHECK(names.size() < parameters.size(), UserError,
           "training.freeze: '{}' leaves no parameter to train; the model has {}", options.freeze,
           first_names(names_of(parameters)));
  uint64_t numbers = 0;
  for (const auto& [name, tensor] : parameters) {
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    at::Tensor(tensor).set_requires_grad(false);
    numbers += static_cast<uint64_t>(tensor.numel());
  }
  return fmt::format("frozen: {} of {} tensors ({} parameters)", names.size(), parameters.size(),
                     format_count(numbers));
}

Weights weights_of_plan(const RunPlan& plan, const plan::TrainingOptions& options, const Path& init_from,
                        const Say& say) {
  XF_CHECK(
      !init_from.empty(), UserError,
      "the plan (training.init_sha256, from {}) begins with weights of SHA-256 {}: name their file with --init-from",
      plan.options.origins.at("training.init_sha256").text, options.init_sha256);
  Weights weights = read_weights(init_from, say);
  XF_CHECK(weights.sha256 == options.init_sha256, DataError,
           "--init-from {}: its weights have SHA-256 {}, but the plan (training.init_sha256, from {}) begins with {}",
           weights.source, weights.sha256, plan.options.origins.at("training.init_sha256").text, options.init_sha256);
  return weights;
}

// What trained them, as far as their file says so; null where it does not.
Json run_of(const Weights& weights) {
  const auto read = [&](const char* key) {
    const auto found = weights.metadata.find(key);
    return found == weights.metadata.end() ? Json() : Json::parse(found->second, nullptr, /*allow_exceptions=*/false);
  };
  const Json trained = read("plan"), step = read("step");
  if (!trained.is_object()) return {};
  Json run = Json::object();
  for (const char* key : {"task", "protocol", "model", "seed", "data.objective", "data.masked_share"})
    if (trained.contains(key)) run[key] = trained[key];
  if (step.is_number()) run["step"] = step;
  return run;
}

std::string file_name(const Path& path) { return (path.has_filename() ? path : path.parent_path()).filename(); }

// Weights of the run that is to make room for this one, by their own place or by where links lead.
void refuse_weights_within(const Path& init_from, const Path& run_folder) {
  namespace fs = std::filesystem;
  const Path run = fs::weakly_canonical(run_folder), full = fs::absolute(init_from).lexically_normal();
  for (const Path& place : {fs::weakly_canonical(full), fs::weakly_canonical(full.parent_path()) / full.filename()})
    XF_CHECK(place != run && place.parent_path() != run && place.parent_path() != run / "checkpoints", UserError,
             "--init-from {}: these weights are in {}, and would be removed with the run there; give another --out",
             init_from.string(), run_folder.string());
}

}  // namespace

std::string weights_sha256(const std::map<std::string, at::Tensor>& tensors) {
  Sha256 hash;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor content = tensor.detach().cpu().contiguous();
    hash.update(fmt::format("{} {} {}\n", name, safetensors_type(content.scalar_type()),
                            fmt::join(content.sizes().vec(), ",")));
    hash.update({static_cast<const char*>(content.const_data_ptr()), content.nbytes()});
  }
  return hash.hex();
}

Weights read_weights(const Path& path, const Say& say) {
  Weights result = std::filesystem::is_directory(path) ? weights_in_run(path, say) : weights_in_file(path);
  result.sha256 = weights_sha256(result.tensors);
  return result;
}

void load_weights(models::Model& model, const Weights& weights) {
  const Comparison comparison = compare(model, weights);
  std::string problem;
  if (!comparison.missing.empty()) problem += "\n  missing: " + first_names(comparison.missing);
  if (!comparison.different.empty()) problem += "\n  not as expected: " + first_names(comparison.different);
  XF_CHECK(problem.empty(), DataError, "{}: not the weights of this model{}", weights.source, problem);
  copy_pairs(comparison);
}

Json prepare_model(models::Model& model, const RunPlan& plan, const Path& init_from, const Path& run_folder,
                   const Say& say, Standing standing) {
  const plan::TrainingOptions options = plan::training_schema().read(plan.group("training"));
  XF_CHECK(init_from.empty() || !options.init_sha256.empty(), UserError,
           "--init-from {}: the plan (training.init_sha256, from {}) begins with no weights", init_from.string(),
           plan.options.origins.at("training.init_sha256").text);
  const bool replaced = standing == Standing::kReplaced;
  if (replaced && !init_from.empty()) refuse_weights_within(init_from, run_folder);
  const Names reinit =
      matching_names("training.reinit", "tensor", patterns_of(options.reinit), names_of(models::state(model)));
  const Names extend =
      matching_names("training.extend", "tensor", patterns_of(options.extend), names_of(models::state(model)));
  Json entry;
  std::string line;
  // What is gone on with has its weights already.
  if (!options.init_sha256.empty() && (replaced || !newest_checkpoint(run_folder, [](const std::string&) {}))) {
    const Weights weights = weights_of_plan(plan, options, init_from, say);
    Comparison comparison = compare(model, weights, reinit, extend);
    XF_CHECK(comparison.different.empty(), UserError,
             "--init-from {}: {} of its tensors do not fit the model; --reinit PATTERN leaves them at their initial "
             "values, training.extend=PATTERN copies rows where there are too few:\n  {}",
             weights.source, comparison.different.size(), fmt::join(comparison.different, "\n  "));
    XF_CHECK(!comparison.taken.empty(), UserError,
             "--init-from {}: nothing of it would be taken; it has {}; the model has {}", weights.source,
             first_names(names_of(weights.tensors)), first_names(names_of(models::state(model))));
    copy_pairs(comparison);
    Names fresh = comparison.missing;
    fresh.insert(fresh.end(), reinit.begin(), reinit.end());
    line = fmt::format("init-from {}: {} of {} tensors taken", weights.source, comparison.taken.size(),
                       comparison.taken.size() + fresh.size());
    if (!comparison.extended.empty()) line += "; rows copied: " + first_names(comparison.extended, 20);
    if (!fresh.empty()) line += "; fresh: " + first_names(fresh, 20);
    if (!comparison.unused.empty()) line += "; unused in the file: " + first_names(comparison.unused, 20);
    entry = {{"file", file_name(init_from)},       {"sha256", weights.sha256},
             {"taken", comparison.taken.size()},   {"fresh", fresh.size()},
             {"unused", comparison.unused.size()}, {"fresh_tensors", fresh},
             {"unused_tensors", comparison.unused}};
    if (!comparison.extended.empty()) entry["extended_tensors"] = comparison.extended;
    if (Json run = run_of(weights); !run.is_null()) entry["run"] = std::move(run);
  }
  if (const std::string frozen = freeze(model, options); !frozen.empty()) line += (line.empty() ? "" : "; ") + frozen;
  if (!line.empty()) say(line);
  return entry;
}

void check_preparation(const RunPlan& plan, const Path& init_from, const Path& run_folder, Standing standing) {
  const plan::TrainingOptions options = plan::training_schema().read(plan.group("training"));
  if (init_from.empty() && options.init_sha256.empty() && options.freeze.empty()) return;
  // Weights may well fit what the files turn out to hold, and not the guess: the run compares them when it has both.
  if (data::find_dataset(plan.task).shape_is_likely) return;
  prepare_model(
      *plan::build_model(plan), plan, init_from, run_folder, [](const std::string&) {}, standing);
}

}  // namespace xformer::training
