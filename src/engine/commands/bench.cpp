// `xformer bench`: models side by side, in time and memory.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>

#include "attention/descriptor.h"
#include "cli/printed.h"
#include "cli/progress.h"
#include "core/files.h"
#include "core/names.h"
#include "engine/commands.h"
#include "engine/plan_arguments.h"
#include "engine/signals.h"
#include "measure/bench.h"
#include "measure/bench_protocols.h"

namespace xformer::engine {

namespace {

struct BenchArguments {
  measure::BenchOptions options;
  std::string json, markdown, as;
  CLI::Option *lengths = nullptr, *batches = nullptr, *task = nullptr, *protocol = nullptr;
  bool no_baseline = false, dry_run = false;
  std::vector<std::string> settings;
  bool valid_from_data = false;
  DataArguments data;
  ComputeArguments compute;
};

// The exact kernel, which every table carries.
constexpr const char* kBaseline = "softmax-fused";

std::vector<std::string> protocol_names() {
  std::vector<std::string> names;
  for (const measure::BenchProtocol& one : measure::bench_protocols()) names.push_back(one.name);
  return names;
}

// Lines of standard input, as they come.
class PaceLines {
 public:
  // Waits for the next one; false at the end of input and once a stop signal came.
  bool next() {
    while (lines_ == 0) {
      if (stop_signal_came()) return false;
      pollfd input{STDIN_FILENO, POLLIN, 0};
      constexpr int kMilliseconds = 100;  // how long a stop signal may go unseen
      if (::poll(&input, 1, kMilliseconds) <= 0) continue;
      char buffer[4096];
      const ssize_t count = ::read(STDIN_FILENO, buffer, sizeof buffer);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      lines_ += std::count(buffer, buffer + count, '\n');
    }
    --lines_;
    return true;
  }

 private:
  int64_t lines_ = 0;  // read and not yet used
};

void answer(const Json& line) {
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

bool is_pattern(const std::string& model) { return model.find_first_of("*?") != std::string::npos; }

// Whether the task lets no place see a later one.
bool is_causal(measure::BenchOptions options) {
  options.models = {kBaseline}, options.own = {}, options.against = {};
  // Options of attentions say nothing of the task, and may be of those that the pattern stands for.
  for (ValueLayer& layer : options.layers) {
    Json others = Json::object();
    for (const auto& [key, value] : layer.values.items())
      if (!key.starts_with("attention.")) others[key] = value;
    layer.values = others;
  }
  return measure::bench_cases(options).front().request.causal;
}

// A pattern stands for every attention that it fits and that can do the task; of what cannot, it is said.
void replace_patterns(measure::BenchOptions& options) {
  if (std::none_of(options.models.begin(), options.models.end(), is_pattern)) return;
  const bool causal = is_causal(options);
  std::vector<std::string> result, unable;
  for (const std::string& model : options.models) {
    if (!is_pattern(model)) {
      result.push_back(model);
      continue;
    }
    for (const std::string& name : matching_names("--models", "attention", {model}, attention::distinct_names()))
      (causal && !attention::resolve(name).traits().causal_ok ? unable : result).push_back(name);
  }
  if (!unable.empty())
    note(fmt::format("left out, for {} lets no place see a later one and they have no causal form: {}", options.task,
                     fmt::join(unable, ", ")));
  options.models = result;
}

// What a named comparison says and the words of the command do not.
void take_protocol(const BenchArguments& arguments, measure::BenchOptions& options) {
  const measure::BenchProtocol& protocol = measure::find_bench_protocol(arguments.as);
  if (options.models.empty())
    for (const measure::BenchModel& model : protocol.models) {
      options.models.push_back(model.name);
      options.own.push_back(model.own);
    }
  if (arguments.lengths->count() == 0) options.lengths = protocol.lengths;
  if (arguments.batches->count() == 0) options.batches = {protocol.batch};
  if (arguments.task->count() == 0) options.task = protocol.task;
  if (arguments.protocol->count() == 0 && options.task == protocol.task) options.protocol = protocol.protocol;
}

// Where "model:key=value" has the colon before the key; npos: it goes to all models. script:my.pt:KEY has two.
size_t own_colon(const std::string& setting) { return setting.substr(0, setting.find('=')).rfind(':'); }

void take_common_settings(const std::vector<std::string>& settings, measure::BenchOptions& options) {
  std::vector<std::string> common;
  std::copy_if(settings.begin(), settings.end(), std::back_inserter(common),
               [](const std::string& setting) { return own_colon(setting) == std::string::npos; });
  if (!common.empty()) options.layers.push_back(settings_layer(common));
}

void take_own_settings(const std::vector<std::string>& settings, measure::BenchOptions& options) {
  for (const std::string& setting : settings) {
    const size_t colon = own_colon(setting);
    if (colon == std::string::npos) continue;
    const std::string model = setting.substr(0, colon);
    const ValueLayer layer = settings_layer({setting.substr(colon + 1)});
    options.own.resize(options.models.size(), Json::object());
    bool there = false;
    for (size_t i = 0; i < options.models.size(); ++i) {
      if (canonical_name(options.models[i]) != canonical_name(model)) continue;
      options.own[i].update(layer.values);
      there = true;
    }
    XF_CHECK(there, UserError, "--set {}: {}", setting,
             unknown_name_message("model of this bench", model, options.models));
  }
}

measure::BenchOptions options_of(const BenchArguments& arguments) {
  measure::BenchOptions options = arguments.options;
  if (!arguments.as.empty()) take_protocol(arguments, options);
  XF_CHECK(!options.models.empty(), UserError, "--models is missing (or --as, a comparison by name: {})",
           fmt::join(protocol_names(), ", "));
  XF_CHECK(!options.lengths.empty(), UserError, "--lengths is missing, e.g. --lengths 1024,2048");
  take_common_settings(arguments.settings, options);
  replace_patterns(options);
  const auto is_baseline = [](const std::string& name) { return canonical_name(name) == kBaseline; };
  if (!options.paced && !arguments.no_baseline &&
      std::none_of(options.models.begin(), options.models.end(), is_baseline))
    options.models.emplace_back(kBaseline);
  take_own_settings(arguments.settings, options);
  return options;
}

std::shared_ptr<BenchArguments> add_options(CLI::App& command) {
  auto arguments = std::make_shared<BenchArguments>();
  measure::BenchOptions& options = arguments->options;
  command
      .add_option("--models", options.models,
                  "[family/]attention, separated by commas; * is any text: every attention that fits")
      ->delimiter(',');
  words(command.add_option("--as", arguments->as,
                           "a published comparison, whose models, task, lengths and batch stand where no option says "
                           "otherwise"),
        protocol_names());
  command
      .add_option("--against", options.against,
                  "models that every row is compared with, separated by commas; default: the first")
      ->delimiter(',');
  const auto numbers = [&](const char* name, std::vector<int64_t>& into, const char* help) {
    return command.add_option(name, into, help)->delimiter(',')->check(whole_number(1));
  };
  arguments->lengths = numbers("--lengths", options.lengths, "tokens per sequence, separated by commas");
  options.batches = {16};
  arguments->batches =
      numbers("--batch", options.batches, "examples per step, separated by commas")->capture_default_str();
  numbers(
      "--widths", options.widths,
      "model.dim, separated by commas; sizes of heads and of hidden parts grow in proportion; default: the protocol's");
  words(command.add_option("--mode", options.mode, "whole training steps, or forward passes"), {"train", "inference"})
      ->capture_default_str();
  command.add_option("--steps", options.steps, "timed steps")->capture_default_str()->check(whole_number(1));
  command.add_option("--warmup", options.warmup, "steps before, not timed; 2 at least, 4 where steps are captured")
      ->capture_default_str()
      ->check(whole_number(0));
  command.add_flag("--interleave", options.interleave,
                   "all models of a length, batch, width and precision take turns step by step");
  command.add_flag("--paced", options.paced,
                   "a timed step for every line on standard input, answered by a line of JSON; for one model");
  command.add_flag("--valid-from-data", arguments->valid_from_data,
                   "as many valid tokens as the task's first training examples have, instead of all");
  arguments->data.add_to(command);
  arguments->task =
      command.add_option("--task", options.task, "whose vocabulary, classes and protocols")->capture_default_str();
  arguments->protocol = command.add_option("--protocol", options.protocol, "whose sizes; default: the task's first");
  words(command.add_option("--precision", options.precisions,
                           "of the arithmetic (training.precision), separated by commas; default: the protocol's"),
        {"fp32", "tf32", "bf16", "fp16"})
      ->delimiter(',');
  command
      .add_option("--set", arguments->settings,
                  "any option of the plan, key=value; an attention's goes to the models that have it; "
                  "model:key=value to that one")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(true);
  command.add_flag("--no-baseline", arguments->no_baseline, "without softmax-fused where --models does not name it");
  command.add_flag("--dry-run", arguments->dry_run, "print the rows that there would be, and stop");
  command.add_option("--json", arguments->json, "also write the report there")->type_name("FILE");
  command.add_option("--markdown", arguments->markdown, "also write the table there")->type_name("FILE");
  arguments->compute.add_to(command);
  return arguments;
}

int bench(const BenchArguments& arguments) {
  const measure::BenchOptions options = options_of(arguments);
  std::vector<measure::BenchCase> cases = measure::bench_cases(options);
  arguments.compute.check();
  check_named_file("--json", arguments.json);
  check_named_file("--markdown", arguments.markdown);
  XF_CHECK(arguments.json.empty() || arguments.json != arguments.markdown, UserError,
           "--json and --markdown {}: two files, of two names", arguments.json);
  const data::DataLocation location =
      arguments.data.location_for_lengths(arguments.valid_from_data, cases.front().plan);

  if (arguments.dry_run) {
    for (const measure::BenchCase& one : cases)
      fmt::print("{}  length {}  batch {}\n", one.label, one.length, one.batch);
    return 0;
  }

  measure::BenchRun run = arguments.compute.start_bench();
  for (const std::string& warning : measure::suit_device(cases, run.device)) note(fmt::format("warning: {}", warning));
  run.command = recorded_command();
  run.stop_requested = stop_signal_came;
  catch_stop_signals();
  Json report;
  {
    ProgressLine line(terminal_options(STDERR_FILENO));
    run.progress = [&](const std::string& text, double fraction) { line.update(text, fraction); };
    run.say = [&](const std::string& text) { line.print(text); };
    if (arguments.valid_from_data) measure::take_valid_lengths(cases, location, progress_callback(line));
    PaceLines lines;
    if (options.paced) {
      run.turn = [&] { return lines.next(); };
      run.ready = [](const Json& row) { answer({{"event", "ready"}, {"row", row}}); };
      run.timed = [](const std::string& model, const measure::StepTime& time) {
        Json line = {{"event", "step"}, {"model", model}, {"ms", time.ms}};
        if (time.host_ms) line["host_ms"] = *time.host_ms;
        if (time.device_ms) line["device_ms"] = *time.device_ms;
        answer(line);
      };
    }
    report = measure::run_bench(options, cases, run);
    line.clear();
  }
  const std::string table = measure::bench_markdown(report);
  print_markdown(table);  // first: what was measured is not lost where a file cannot be written
  if (!arguments.markdown.empty()) write_file_atomically(arguments.markdown, table);
  if (!arguments.json.empty()) write_file_atomically(arguments.json, report.dump(2) + "\n");
  return 0;
}

}  // namespace

std::function<int()> add_bench(CLI::App& program) {
  const auto arguments = add_options(
      *program.add_subcommand("bench", "compares models in speed, memory and operations, on random tokens"));
  return [arguments] { return bench(*arguments); };
}

void check_bench(const std::vector<std::string>& words) {
  CLI::App command;
  const auto arguments = add_options(command);
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());  // as CLI11 takes them
    command.parse(reversed);
  } catch (const CLI::ParseError& error) {
    throw UserError(error.what());
  }
  static_cast<void>(measure::bench_cases(options_of(*arguments)));
  arguments->compute.check();
}

}  // namespace xformer::engine
