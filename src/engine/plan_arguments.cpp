#include "engine/plan_arguments.h"

#include "cli/command.h"

#include <charconv>
#include <cstdlib>

#include "core/json_file.h"
#include "core/names.h"
#include "kernels/policy.h"
#include "tensor/device.h"
#include "training/replay.h"
#include "training/run_directory.h"
#include "training/weights.h"

namespace xformer::engine {

using namespace cli;

namespace {

// The names a configuration file may hold beside dotted option keys.
const std::vector<std::string> kFileNames{"task", "model", "protocol", "seed", "extends"};

Json read_config(const Path& path) {
  Json result = read_extended_json(path);
  for (const auto& [key, value] : result.items())
    if (key.find('.') == std::string::npos && std::find(kFileNames.begin(), kFileNames.end(), key) == kFileNames.end())
      throw UserError(fmt::format("{}: {}; option keys are dotted, like training.batch", path.string(),
                                  unknown_name_message("key", key, kFileNames)));
  return result;
}

}  // namespace

void PlanArguments::add_to(CLI::App& command) {
  command.add_option("--model", model, "[family/]attention, e.g. mrs-linformer (`xformer list`)")->group("What");
  command.add_option("--task", task, "e.g. listops (`xformer list tasks`)")->group("What");
  command.add_option("--protocol", protocol, "named set of data rules, sizes and settings; default: the task's first")
      ->group("What");
  seed_option = command.add_option("--seed", seed, "seed of weights, order and dropout")
                    ->capture_default_str()
                    ->check(whole_number(0))
                    ->group("What");
  command.add_option("--steps", steps, "length of the whole schedule; its warm-up is scaled with it")
      ->check(whole_number(1))
      ->group("Plan");
  command.add_option("--batch", batch, "examples per step (training.batch)")->check(whole_number(1))->group("Plan");
  command.add_option("--micro-batch", micro_batch, "examples at once, accumulated to the batch (training.micro_batch)")
      ->check(whole_number(1))
      ->group("Plan");
  command.add_option("--length", length, "bytes that text is cut to, places of a generated sequence (data.length)")
      ->check(whole_number(1))
      ->group("Plan");
  command.add_option("--precision", precision, "fp32, tf32, bf16 or fp16 (training.precision)")->group("Plan");
  command.add_option("--eval-every", eval_every, "steps between dev evaluations (training.eval_every)")
      ->check(whole_number(1))
      ->group("Plan");
  command.add_option("--set", settings, "any option of the plan, key=value; again for more (`xformer describe NAME`)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(true)
      ->group("Plan");
  command
      .add_option(
          "--init-from", init_from,
          "begin with these weights, where name and shape match: a weights file, a checkpoint or a run's directory")
      ->type_name("FILE")
      ->group("Plan");
  const auto patterns = [&](const char* name, std::vector<std::string>& into, const char* help) {
    command.add_option(name, into, help)->type_name("PATTERN")->delimiter(',')->group("Plan");
  };
  patterns("--freeze", freeze, "do not train the parameters of these names; * is any text (training.freeze)");
  patterns("--reinit", reinit, "leave these tensors at their initial values under --init-from (training.reinit)");
  command.add_option("--config", config, "JSON file of names and option keys; may extend another file")
      ->type_name("FILE")
      ->group("Plan");
}

ValueLayer settings_layer(const std::vector<std::string>& settings) {
  ValueLayer layer{"--set", Json::object()};
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    XF_CHECK(equals != std::string::npos && equals > 0, UserError, "--set: expected key=value, got '{}'", setting);
    layer.values[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  return layer;
}

plan::PlanRequest PlanArguments::request() const {
  plan::PlanRequest request;
  request.task = task;
  request.model = model;
  request.protocol = protocol;
  request.seed = seed;
  request.steps = steps;
  request.length = length;
  if (!config.empty()) {
    ValueLayer file{{OriginKind::kFile, "file " + Path(config).filename().string()}};
    const Json given = read_config(config);
    for (const auto& [key, value] : given.items()) {
      if (key.find('.') != std::string::npos) file.values[key] = value;
      else if (key == "seed") {
        XF_CHECK(value.is_number_unsigned(), UserError, "{}: seed: expected a whole number from 0, got {}", config,
                 value.dump());
        if (seed_option->count() == 0) request.seed = value;
      } else {
        XF_CHECK(value.is_string(), UserError, "{}: {}: expected a name, got {}", config, key, value.dump());
        std::string& name = key == "task" ? request.task : key == "model" ? request.model : request.protocol;
        if (name.empty()) name = value;
      }
    }
    request.layers.push_back(file);
  }
  XF_CHECK(!request.model.empty(), UserError,
           "--model is missing, e.g. --model mrs-linformer (`xformer list` shows the names)");
  XF_CHECK(!request.task.empty(), UserError,
           "--task is missing, e.g. --task listops (`xformer list tasks` shows the names)");
  const auto option = [&](const char* flag, const char* key, const Json& value) {
    request.layers.push_back({flag, {{key, value}}});
  };
  if (batch > 0) option("--batch", "training.batch", batch);
  if (micro_batch > 0) option("--micro-batch", "training.micro_batch", micro_batch);
  if (!precision.empty()) option("--precision", "training.precision", precision);
  if (eval_every > 0) option("--eval-every", "training.eval_every", eval_every);
  if (!freeze.empty()) option("--freeze", "training.freeze", fmt::format("{}", fmt::join(freeze, ",")));
  if (!reinit.empty()) option("--reinit", "training.reinit", fmt::format("{}", fmt::join(reinit, ",")));
  // A hash that a file asks for stays: the weights must be those.
  const bool hash_is_given =
      !request.layers.empty() && request.layers.front().values.value("training.init_sha256", Json("")) != "";
  if (!init_from.empty() && !hash_is_given)
    option("--init-from", "training.init_sha256", training::read_weights(init_from, [](const std::string&) {}).sha256);
  if (!settings.empty()) request.layers.push_back(settings_layer(settings));
  return request;
}

void DataArguments::add_to(CLI::App& command) {
  command
      .add_option("--data", folder,
                  "folder of the dataset's files, or an archive of them; default: $XFORMER_DATA/<dataset>, else "
                  "generated where the task can be")
      ->type_name("DIR");
}

data::DataLocation DataArguments::location(const std::string& dataset) const {
  data::DataLocation location;
  const char* root = std::getenv("XFORMER_DATA");
  if (!folder.empty()) {
    XF_CHECK(std::filesystem::exists(folder), DataError, "--data: there is no file or folder {}", folder);
    location.folder = folder;
  } else if (root != nullptr && *root != '\0' && std::filesystem::is_directory(Path(root) / dataset)) {
    location.folder = Path(root) / dataset;
  }
  return location;
}

data::DataLocation DataArguments::location_for_lengths(bool valid_from_data, const RunPlan& plan) const {
  XF_CHECK(valid_from_data || folder.empty(), UserError, "--data: no data is read here without --valid-from-data");
  if (!valid_from_data) return {};
  data::DataLocation result = location(plan.task);
  check_generator_options(plan, result);
  return result;
}

void ComputeArguments::add_to(CLI::App& command, bool batches) {
  command.add_option("--device", device, "auto (CUDA where there is some), cpu, cuda or cuda:N")->capture_default_str();
  command.add_option("--threads", threads, "threads that compute; default: one per processor")->check(whole_number(1));
  command
      .add_option(
          "--kernels", kernels,
          "auto, reference (plain operators), composite (plain, but dropout), check (fused and plain, compared)")
      ->capture_default_str();
  command.add_option("--deterministic", deterministic, "on, or off for speed; recorded")->capture_default_str();
  if (!batches) return;
  command
      .add_option("--cuda-graph", cuda_graph, "capture steps in CUDA graphs: auto (where it can be), on (or fail), off")
      ->capture_default_str();
}

void ComputeArguments::check() const {
  static_cast<void>(kernels::parse_policy(kernels));
  XF_CHECK(deterministic == "on" || deterministic == "off", UserError, "--deterministic: expected on or off, got '{}'",
           deterministic);
  check_device_name(device);
  training::check_cuda_graph_word(cuda_graph);
}

std::vector<std::string> ComputeArguments::words() const {
  const ComputeArguments usual;
  std::vector<std::string> result;
  const auto word = [&](const char* name, const std::string& value, const std::string& otherwise) {
    if (value != otherwise) result.insert(result.end(), {name, value});
  };
  word("--device", device, usual.device);
  word("--kernels", kernels, usual.kernels);
  word("--deterministic", deterministic, usual.deterministic);
  word("--cuda-graph", cuda_graph, usual.cuda_graph);
  word("--threads", std::to_string(threads), std::to_string(usual.threads));
  return result;
}

at::Device ComputeArguments::start() const {
  configure_compute({threads, deterministic == "on"});
  const FoundDevice found = find_device(device);
  if (!found.note.empty()) fmt::print(stderr, "xformer: {}\n", found.note);
  return found.device;
}

void check_generator_options(const RunPlan& plan, const data::DataLocation& location) {
  const data::DatasetDescriptor& dataset = data::find_dataset(plan.task);
  if (location.folder.empty()) return dataset.check_generator(plan.group("data"));
  for (const std::string& name : dataset.generator_options) {
    const Origin& origin = plan.options.origins.at("data." + name);
    const auto option = std::find_if(dataset.options.begin(), dataset.options.end(),
                                     [&](const OptionInfo& info) { return info.name == name; });
    // A file made by --dump-config=full names every value.
    const bool untouched =
        option != dataset.options.end() && plan.options.values.at("data." + name) == option->fallback;
    if (untouched && origin.kind == OriginKind::kFile) continue;
    XF_CHECK(origin.is_preset() || origin.kind == OriginKind::kStored, UserError,
             "data.{} (from {}) is a setting of the generator, but the data is read from {}", name, origin.text,
             location.folder.string());
  }
}

}  // namespace xformer::engine
