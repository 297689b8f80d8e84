// `xformer span` and `xformer analyse approximation`: what trained models show of themselves.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "analysis/approximation.h"
#include "analysis/attention_span.h"
#include "cli/printed.h"
#include "cli/progress.h"
#include "core/text.h"
#include "core/utf8.h"
#include "engine/commands.h"
#include "engine/plan_arguments.h"
#include "training/run_directory.h"

namespace xformer::engine {

namespace {

struct AnalysisArguments {
  std::string run, split = "dev";
  std::vector<std::string> models, settings;
  DataArguments data;
  ComputeArguments compute;
  int64_t examples = 1000, seed = 0;
  bool json = false;

  void add_to(CLI::App& command, int64_t usual_examples) {
    examples = usual_examples;
    command.add_option("RUN_DIR", run, "directory of a finished run")->required();
    command.add_option("--split", split, "train, dev or test")->capture_default_str();
    command.add_option("--examples", examples, "drawn from the split")->capture_default_str()->check(whole_number(1));
    command.add_option("--seed", seed, "that draws them")->capture_default_str()->check(whole_number(0));
    data.add_to(command);
    compute.add_to(command, /*batches=*/false);
    command.add_flag("--json", json, "print JSON");
  }
};

struct Opened {
  training::TrainedRun run;
  data::Split split;
};

Opened open(const AnalysisArguments& arguments, ProgressLine& line) {
  arguments.compute.check();
  const data::Split split = data::parse_split(arguments.split);
  const RunPlan plan = plan::stored_plan(training::read_plan(arguments.run));
  data::DataLocation location = arguments.data.location(plan.task);
  location.require_all_splits = false;
  return {training::open_run(arguments.run, split, location, arguments.compute.start(), progress_callback(line),
                             [&](const std::string& text) { line.print(text); }),
          split};
}

std::function<void(int64_t, int64_t)> show(ProgressLine& line) {
  return [&line](int64_t done, int64_t total) {
    line.update(fmt::format("example {}/{}", done, total), static_cast<double>(done) / static_cast<double>(total));
  };
}

int span(const AnalysisArguments& arguments) {
  ProgressLine line(terminal_options(STDERR_FILENO));
  const Opened opened = open(arguments, line);
  const analysis::RequiredSpan result = analysis::required_span(opened.run, opened.split, arguments.examples,
                                                                static_cast<uint64_t>(arguments.seed), show(line));
  line.clear();
  if (arguments.json) {
    Json heads = Json::array();
    for (const analysis::HeadSpan& one : result.heads)
      heads.push_back(
          {{"layer", one.layer}, {"head", one.head}, {"span", one.span}, {"without_front", one.without_front}});
    fmt::print("{}\n", Json{{"run", as_utf8(arguments.run)},
                            {"task", opened.run.plan.task},
                            {"model", opened.run.plan.model},
                            {"weights_sha256", opened.run.weights_sha256},
                            {"split", arguments.split},
                            {"seed", arguments.seed},
                            {"examples", result.examples},
                            {"front", result.front},
                            {"weights", result.effective ? "effective" : "softmax"},
                            {"span", result.span},
                            {"without_front", result.without_front},
                            {"uniform", result.uniform},
                            {"heads", heads}}
                           .dump(2));
    return 0;
  }
  std::vector<std::string> head{"layer", "head", "span"};
  if (result.front > 0) head.push_back("without CLS");
  std::vector<std::vector<std::string>> rows;
  for (const analysis::HeadSpan& one : result.heads) {
    rows.push_back({std::to_string(one.layer), std::to_string(one.head), fmt::format("{:.1f}", one.span)});
    if (result.front > 0) rows.back().push_back(fmt::format("{:.1f}", one.without_front));
  }
  print_table(head, rows, /*markdown=*/false);
  fmt::print("\nrequired span {:.1f} tokens", result.span);
  if (result.front > 0) fmt::print(" ({:.1f} without CLS)", result.without_front);
  fmt::print(", over {} {} examples of {}; uniform weights: {:.1f}\n",
             format_count(static_cast<uint64_t>(result.examples)), arguments.split, opened.run.plan.task,
             result.uniform);
  if (result.effective)
    fmt::print("Effective weights: what {} multiplies its values by, absolute and over each query's sum.\n",
               opened.run.plan.attention);
  return 0;
}

std::vector<analysis::Candidate> candidates(const AnalysisArguments& arguments) {
  const ValueLayer layer = settings_layer(arguments.settings);
  std::vector<analysis::Candidate> result;
  std::map<std::string, bool> used;
  for (const auto& [key, value] : layer.values.items()) used[key] = false;
  for (const std::string& name : arguments.models) {
    analysis::Candidate one{attention::resolve(name), Json::object()};
    ValueLayer own{layer.origin, Json::object()};
    for (const OptionInfo& option : one.attention.options())
      if (const std::string key = "attention." + option.name; layer.values.contains(key)) {
        own.values[key] = layer.values[key];
        used[key] = true;
      }
    RunPlan plan;
    plan.options = resolve_options({{"attention", one.attention.name, one.attention.options()}}, {own});
    one.options = plan.group("attention");
    result.push_back(std::move(one));
  }
  for (const auto& [key, was] : used)
    XF_CHECK(was, UserError, "--set {}: none of {} has this option", key, fmt::join(arguments.models, ", "));
  return result;
}

int approximation(const AnalysisArguments& arguments) {
  const std::vector<analysis::Candidate> wanted = candidates(arguments);
  ProgressLine line(terminal_options(STDERR_FILENO));
  const Opened opened = open(arguments, line);
  const std::vector<analysis::ApproximationError> errors = analysis::approximation_errors(
      opened.run, wanted, opened.split, arguments.examples, static_cast<uint64_t>(arguments.seed), show(line));
  line.clear();
  if (arguments.json) {
    Json rows = Json::array();
    for (const analysis::ApproximationError& one : errors) {
      Json layers = Json::array();
      for (const analysis::LayerError& layer : one.layers)
        layers.push_back({{"relative_error", layer.relative}, {"cosine", layer.cosine}});
      rows.push_back({{"attention", one.attention},
                      {"untrained_parameters", one.untrained},
                      {"refusal", one.refusal.empty() ? Json() : Json(one.refusal)},
                      {"layers", layers}});
    }
    fmt::print("{}\n", Json{{"run", as_utf8(arguments.run)},
                            {"task", opened.run.plan.task},
                            {"weights_sha256", opened.run.weights_sha256},
                            {"split", arguments.split},
                            {"examples", arguments.examples},
                            {"seed", arguments.seed},
                            {"attentions", rows}}
                           .dump(2));
    return 0;
  }
  std::vector<std::vector<std::string>> rows;
  for (const analysis::ApproximationError& one : errors) {
    if (!one.refusal.empty()) rows.push_back({one.attention, "-", "-", "-", one.refusal});
    for (size_t layer = 0; layer < one.layers.size(); ++layer)
      rows.push_back({one.attention, std::to_string(layer), fmt::format("{:.4f}", one.layers[layer].relative),
                      fmt::format("{:.4f}", one.layers[layer].cosine),
                      one.untrained > 0 ? fmt::format("{} parameters, not trained",
                                                      format_count(static_cast<uint64_t>(one.untrained)))
                                        : ""});
  }
  print_table({"attention", "layer", "relative error", "cosine", ""}, rows, /*markdown=*/false);
  fmt::print("\nAgainst softmax on the queries, keys and values of {}, over {} {} examples at most.\n", arguments.run,
             format_count(static_cast<uint64_t>(arguments.examples)), arguments.split);
  return 0;
}

constexpr const char* kSpanHelp = "how far a trained model looks, by its attention weights (required attention span)";

}  // namespace

std::function<int()> add_span(CLI::App& program) {
  const auto arguments = std::make_shared<AnalysisArguments>();
  arguments->add_to(*program.add_subcommand("span", kSpanHelp), 1000);
  return [arguments] { return span(*arguments); };
}

std::function<int()> add_analyse(CLI::App& program) {
  const auto arguments = std::make_shared<AnalysisArguments>();
  CLI::App& command = *program.add_subcommand(
      "analyse", "what a trained model shows: how far it looks (span), how well others approximate it (approximation)");
  command.require_subcommand(1);
  const auto spanning = std::make_shared<AnalysisArguments>();
  CLI::App& looking = *command.add_subcommand("span", kSpanHelp);
  spanning->add_to(looking, 1000);
  CLI::App& own = *command.add_subcommand(
      "approximation", "error of attentions against softmax on a trained model's queries, keys and values");
  arguments->add_to(own, 100);
  own.add_option("--models", arguments->models, "attentions, separated by commas")->delimiter(',')->required();
  own.add_option("--set", arguments->settings, "attention.key=value, for those that have it")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(true);
  return [arguments, spanning, &looking] { return looking.parsed() ? span(*spanning) : approximation(*arguments); };
}

}  // namespace xformer::engine
