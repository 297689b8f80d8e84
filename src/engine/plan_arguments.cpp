#include "engine/plan_arguments.h"

#include "cli/command.h"

#include <charconv>
#include <cstdlib>

#include "cli/printed.h"
#include "core/names.h"
#include "core/option_names.h"
#include "kernels/cpu/tile_product.h"
#include "kernels/policy.h"
#include "readers/option_file.h"
#include "tensor/device.h"
#include "training/replay.h"
#include "training/run_directory.h"
#include "training/weights.h"

namespace xformer::engine {

using namespace cli;

namespace {

// The names a configuration file may hold beside option keys; "name" is a stored plan's, for the words of the model.
const std::vector<std::string> kFileNames{"task",  "model",  "name", "protocol", "seed",
                                          "steps", "length", "set",  "extends"};
// Of these, what a plan is asked for by.
const std::vector<std::string> kRequestNames{"task", "model", "protocol", "seed", "steps", "length"};

bool is_one_of(const std::string& key, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), key) != names.end();
}

Json read_config(const Path& path) {
  Json result = readers::read_extended_file(path, {"set"});
  // A record has the plan of its run.
  if (result.contains("schema_version") && result.contains("plan") && result["plan"].is_object()) {
    XF_CHECK(!readers::read_option_file(path).contains("extends"), UserError,
             "{}: a record repeats its run as it was; to change something, extend its run's plan.json", path.string());
    result = Json(result["plan"]);
  }
  for (const auto& [key, value] : result.items())
    XF_CHECK(key.find('.') != std::string::npos || is_one_of(key, kFileNames) || !usual_option(key).empty(), UserError,
             "{}: {}; option keys are dotted, like training.batch", path.string(),
             unknown_name_message("key", key, kFileNames));
  return result;
}

int64_t whole(const std::string& key, const Json& value, int64_t least, const std::string& origin) {
  int64_t number = least - 1;
  if (value.is_number_integer()) number = value.get<int64_t>();
  else if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) number = least - 1;
  }
  XF_CHECK(number >= least, UserError, "{}: {}: expected a whole number from {}, got {}", origin, key, least,
           value.dump());
  return number;
}

// What a file or a word asks for where the command line has not.
void take(const std::string& key, const Json& value, const std::string& origin, bool seed_is_given,
          plan::PlanRequest& request) {
  if (key == "seed") {
    if (const int64_t seed = whole(key, value, 0, origin); !seed_is_given) request.seed = seed;
  } else if (key == "steps" || key == "length") {
    int64_t& number = key == "steps" ? request.steps : request.length;
    if (const int64_t given = whole(key, value, 1, origin); number == 0) number = given;
  } else {
    XF_CHECK(value.is_string(), UserError, "{}: {}: expected a name, got {}", origin, key, value.dump());
    std::string& name = key == "task" ? request.task : key == "model" ? request.model : request.protocol;
    if (name.empty()) name = value;
  }
}

// "linformer" alone, meant as --model linformer.
[[noreturn]] void fail_word(const std::string& word) {
  const std::vector<std::string> models = plan::model_names();
  std::string meant;
  if (is_one_of(canonical_name(word), models)) meant = "--model " + word;
  else if (data::datasets().find(word) != nullptr) meant = "--task " + word;
  throw UserError(fmt::format("expected key=value, got '{}'{}", word,
                              meant.empty() ? "" : fmt::format("; did you mean {}?", meant)));
}

}  // namespace

void add_settings(CLI::App& command, std::vector<std::string>& settings, std::vector<std::string>& words) {
  command.add_option("--set", settings, "any option of the plan, key=value; again for more (`xformer describe NAME`)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(true)
      ->group("Plan");
  command.add_option("SETTING", words, "the same without --set, e.g. training.batch=16 or lr=1e-3");
}

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
  command
      .add_option("--epochs", epochs,
                  "count passes over the training data instead; the warm-up keeps its share, in whole passes "
                  "(training.epochs)")
      ->check(whole_number(1))
      ->group("Plan");
  command.add_option("--lr", learning_rate, "peak or base learning rate (training.learning_rate)")
      ->check(CLI::Validator([](std::string& text) { return text.empty() ? "expected a number, got ''" : ""; }, ""))
      ->group("Plan");
  command.add_option("--batch", batch, "examples per step (training.batch)")->check(whole_number(1))->group("Plan");
  command.add_option("--micro-batch", micro_batch, "examples at once, accumulated to the batch (training.micro_batch)")
      ->check(whole_number(1))
      ->group("Plan");
  command.add_option("--length", length, "bytes that text is cut to, places of a generated sequence (data.length)")
      ->check(whole_number(1))
      ->group("Plan");
  cli::words(command.add_option("--precision", precision,
                                "of the arithmetic (training.precision); auto: the protocol's, or fp32 where the "
                                "device has none of it"),
             {"auto", "fp32", "tf32", "bf16", "fp16"})
      ->capture_default_str()
      ->group("Plan");
  command.add_option("--eval-every", eval_every, "steps between dev evaluations (training.eval_every)")
      ->check(whole_number(1))
      ->group("Plan");
  command.add_option("--log-every", log_every, "steps between lines of the log (training.log_every)")
      ->check(whole_number(1))
      ->group("Plan");
  command
      .add_option("--limit", limit,
                  "take only part of the data, e.g. train=0.1,dev=200,test=200 (data.limit); not comparable then")
      ->type_name("SPLIT=N,..")
      ->group("Plan");
  command.add_flag("--fast", fast, "five steps and two batches of each evaluation: does it run? not comparable")
      ->group("Plan");
  add_settings(command, settings, words);
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
  command
      .add_option("--config", config,
                  "JSON, YAML or TOML of names and option keys, which may extend another file; or a record.json, whose "
                  "run is repeated")
      ->type_name("FILE")
      ->group("Plan");
}

ValueLayer settings_layer(const std::vector<std::string>& settings) {
  ValueLayer layer{"--set", Json::object()};
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos) fail_word(setting);
    XF_CHECK(equals > 0, UserError, "expected key=value, got '{}'", setting);
    const std::string key = setting.substr(0, equals);
    if (const auto before = layer.values.find(key); before != layer.values.end())
      cli::note(fmt::format("xformer: {} counts, and not {}={} before it", setting, key, before->get<std::string>()));
    layer.values[key] = setting.substr(equals + 1);
  }
  return layer;
}

namespace {

// The setting that says an option, as it was given ("batch=7"); "" where none does.
std::string setting_of(const Json& settings, const std::string& key) {
  for (const auto& [word, value] : settings.items())
    if (word == key || usual_option(word) == key) return word + "=" + value.get<std::string>();
  return "";
}

}  // namespace

plan::PlanRequest PlanArguments::request() const {
  plan::PlanRequest request;
  request.task = task;
  request.model = model;
  request.protocol = protocol;
  request.seed = seed;
  request.steps = steps;
  request.length = length;
  request.epochs = epochs;
  const bool seed_is_given = seed_option->count() > 0;
  std::vector<std::string> all = words;
  all.insert(all.end(), settings.begin(), settings.end());
  ValueLayer set = settings_layer(all);
  const auto said = [&](const char* flag, const char* key, bool given) {
    const std::string setting = given ? setting_of(set.values, key) : "";
    XF_CHECK(setting.empty(), UserError, "{} and {} both say {}; give one of them", flag, setting, key);
  };
  said("--task", "task", !task.empty());
  said("--model", "model", !model.empty());
  said("--protocol", "protocol", !protocol.empty());
  said("--seed", "seed", seed_is_given);
  said("--steps", "training.steps", steps > 0);
  said("--epochs", "training.epochs", epochs > 0);
  said("--length", "data.length", length > 0);
  const bool seed_is_set = seed_is_given || set.values.contains("seed");
  for (const std::string& key : kRequestNames)
    if (set.values.contains(key)) {
      take(key, set.values[key], "--set", seed_is_given, request);
      set.values.erase(key);
    }
  request.fast = fast;
  if (!config.empty()) {
    ValueLayer file{{OriginKind::kFile, "file " + Path(config).filename().string()}};
    Json given = read_config(config);
    // A stored plan's words for its model; a nearer file's model is another.
    if (const auto name = given.find("name"); name != given.end()) {
      XF_CHECK(name->is_string(), UserError, "{}: name: expected a name, got {}", config, name->dump());
      const Json word = *name, model = given.value("model", word);
      const plan::ModelWords meant = plan::read_model(word.get<std::string>(), "encoder");
      if (model == meant.attention || model == meant.family->name ||
          model == meant.family->name + "/" + meant.attention)
        given["model"] = word;
    }
    for (const auto& [key, value] : given.items()) {
      if (key == "set") {
        XF_CHECK(value.is_object(), UserError, "{}: set: expected an object of option keys, got {}", config,
                 value.dump());
        for (const auto& [option, one] : value.items()) file.values[option] = one;
      } else if (is_one_of(key, kRequestNames)) {
        take(key, value, config, seed_is_set, request);
      } else if (key != "name") {
        file.values[key] = value;
      }
    }
    request.layers.push_back(file);
  }
  XF_CHECK(!request.model.empty(), UserError,
           "--model is missing, e.g. --model mrs-linformer (`xformer list` shows the names)");
  XF_CHECK(!request.task.empty(), UserError,
           "--task is missing, e.g. --task listops (`xformer list tasks` shows the names)");
  const auto option = [&](const char* flag, const char* key, const Json& value) {
    if (const std::string setting = setting_of(set.values, key); !setting.empty())
      cli::note(fmt::format("xformer: {} counts, and not {}: settings are nearer than options", setting, flag));
    request.layers.push_back({flag, {{key, value}}});
  };
  if (!learning_rate.empty()) option("--lr", "training.learning_rate", learning_rate);
  if (batch > 0) option("--batch", "training.batch", batch);
  if (micro_batch > 0) option("--micro-batch", "training.micro_batch", micro_batch);
  if (!limit.empty()) option("--limit", "data.limit", limit);
  if (log_every > 0) option("--log-every", "training.log_every", log_every);
  if (precision != "auto") option("--precision", "training.precision", precision);
  if (eval_every > 0) option("--eval-every", "training.eval_every", eval_every);
  if (!freeze.empty()) option("--freeze", "training.freeze", fmt::format("{}", fmt::join(freeze, ",")));
  if (!reinit.empty()) option("--reinit", "training.reinit", fmt::format("{}", fmt::join(reinit, ",")));
  // A hash that a file asks for stays: the weights must be those.
  const bool hash_is_given =
      !request.layers.empty() && request.layers.front().values.value("training.init_sha256", Json("")) != "";
  if (!init_from.empty() && !hash_is_given)
    option("--init-from", "training.init_sha256", training::read_weights(init_from, [](const std::string&) {}).sha256);
  if (!set.values.empty()) request.layers.push_back(set);
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
    data::check_place(folder);
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
  command.add_option("--threads", threads, "threads that compute; default: $OMP_NUM_THREADS, else one per processor")
      ->check(whole_number(1));
  cli::words(command.add_option("--kernels", kernels,
                                "blas: auto, but tiles multiplied by LibTorch's BLAS; reference: plain operators; "
                                "composite: plain, but dropout; check: fused and plain, compared"),
             {"auto", "blas", "reference", "composite", "check"})
      ->capture_default_str();
  cli::words(command.add_option("--deterministic", deterministic, "off for speed; recorded"), {"on", "off"})
      ->capture_default_str();
  if (!batches) return;
  cli::words(command.add_option("--cuda-graph", cuda_graph,
                                "capture steps in CUDA graphs: auto, where it can be; on, or fail"),
             {"auto", "on", "off"})
      ->capture_default_str();
}

void ComputeArguments::check() const {
  static_cast<void>(kernels::parse_policy(kernels));
  XF_CHECK(deterministic == "on" || deterministic == "off", UserError, "--deterministic: expected on or off, got '{}'",
           deterministic);
  constexpr int64_t kMostThreads = 1024;  // LibTorch starts them all at once; of thousands it never comes back
  XF_CHECK(threads <= kMostThreads, UserError, "--threads: expected at most {}, got {}", kMostThreads, threads);
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
  if (!found.note.empty()) cli::note(fmt::format("xformer: {}", found.note));
  if (const std::string& note = kernels::tile_products().note; found.device.is_cpu() && !note.empty())
    cli::note(fmt::format("xformer: {}", note));
  return found.device;
}

measure::BenchRun ComputeArguments::start_bench() const {
  measure::BenchRun run;
  run.device = start();
  run.deterministic = deterministic == "on";
  run.kernels = kernels;
  run.cuda_graph = cuda_graph;
  return run;
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
