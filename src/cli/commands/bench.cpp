// `xformer bench`: models side by side, in time and memory.
#include <fmt/format.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/plan_arguments.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "core/files.h"
#include "training/bench.h"

namespace xformer::cli {

namespace {

struct BenchArguments {
  training::BenchOptions options;
  std::string precision, json, markdown;
  std::vector<std::string> settings;
  ComputeArguments compute;
};

// A table that cannot be written is known before hours of work.
void check_place(const char* option, const std::string& file) {
  if (file.empty()) return;
  const Path folder = Path(file).parent_path();
  XF_CHECK(folder.empty() || std::filesystem::is_directory(folder), UserError, "{} {}: there is no folder {}", option,
           file, folder.string());
  XF_CHECK(!std::filesystem::is_directory(file), UserError, "{} {}: expected a file's name, this is a folder", option,
           file);
}

int bench(const BenchArguments& arguments) {
  training::BenchOptions options = arguments.options;
  if (!arguments.precision.empty())
    options.layers.push_back({"--precision", {{"training.precision", arguments.precision}}});
  if (!arguments.settings.empty()) options.layers.push_back(settings_layer(arguments.settings));
  const std::vector<training::BenchCase> cases = training::bench_cases(options);
  arguments.compute.check();
  check_place("--json", arguments.json);
  check_place("--markdown", arguments.markdown);

  training::BenchRun run;
  run.device = arguments.compute.start();
  run.deterministic = arguments.compute.deterministic == "on";
  run.kernels = arguments.compute.kernels;
  run.cuda_graph = arguments.compute.cuda_graph;
  run.command = recorded_command();
  run.stop_requested = stop_signal_came;
  catch_stop_signals();
  Json report;
  {
    ProgressLine line(terminal_options(STDERR_FILENO));
    run.progress = [&](const std::string& text, double fraction) { line.update(text, fraction); };
    run.say = [&](const std::string& text) { line.print(text); };
    report = training::run_bench(options, cases, run);
    line.clear();
  }
  const std::string table = training::bench_markdown(report);
  if (!arguments.json.empty()) write_file_atomically(arguments.json, report.dump(2) + "\n");
  if (!arguments.markdown.empty()) write_file_atomically(arguments.markdown, table);
  fmt::print("{}", table);
  return 0;
}

}  // namespace

std::function<int()> add_bench(CLI::App& program) {
  const auto arguments = std::make_shared<BenchArguments>();
  training::BenchOptions& options = arguments->options;
  CLI::App& command =
      *program.add_subcommand("bench", "compares models in speed, memory and operations, on random tokens");
  command.add_option("--models", options.models, "[family/]attention, separated by commas")->delimiter(',')->required();
  command
      .add_option("--against", options.against,
                  "models that every row is compared with, separated by commas; default: the first")
      ->delimiter(',');
  const auto numbers = [&](const char* name, std::vector<int64_t>& into, const char* help) {
    return command.add_option(name, into, help)->delimiter(',')->check(whole_number(1));
  };
  numbers("--lengths", options.lengths, "tokens per sequence, separated by commas")->required();
  options.batches = {16};
  numbers("--batch", options.batches, "examples per step, separated by commas")->capture_default_str();
  command.add_option("--mode", options.mode, "train (whole steps) or inference (forward passes)")
      ->capture_default_str();
  command.add_option("--steps", options.steps, "timed steps")->capture_default_str()->check(whole_number(1));
  command.add_option("--warmup", options.warmup, "steps before, not timed; 2 at least, 4 where steps are captured")
      ->capture_default_str()
      ->check(whole_number(0));
  command.add_flag("--interleave", options.interleave, "all models of a length and batch take turns step by step");
  command.add_option("--task", options.task, "whose vocabulary, classes and protocols")->capture_default_str();
  command.add_option("--protocol", options.protocol, "whose sizes; default: the task's first");
  command.add_option("--precision", arguments->precision, "fp32, tf32, bf16 or fp16 (training.precision)");
  command
      .add_option("--set", arguments->settings,
                  "any option of the plan, key=value; an attention's goes to the models that have it")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(true);
  command.add_option("--json", arguments->json, "also write the report there")->type_name("FILE");
  command.add_option("--markdown", arguments->markdown, "also write the table there")->type_name("FILE");
  arguments->compute.add_to(command);
  return [arguments] { return bench(*arguments); };
}

}  // namespace xformer::cli
