// `xformer profile`: where a step goes.
#include <fmt/format.h>
#include <unistd.h>

#include "cli/printed.h"
#include "cli/progress.h"
#include "core/files.h"
#include "engine/commands.h"
#include "engine/plan_arguments.h"
#include "engine/signals.h"
#include "measure/profile.h"

namespace xformer::engine {

namespace {

struct ProfileArguments {
  measure::ProfileOptions options;
  std::string precision, out;
  std::vector<std::string> settings;
  bool json = false, valid_from_data = false;
  DataArguments data;
  ComputeArguments compute;
};

int profile(const ProfileArguments& arguments) {
  measure::ProfileOptions options = arguments.options;
  if (!arguments.precision.empty())
    options.layers.push_back({"--precision", {{"training.precision", arguments.precision}}});
  if (!arguments.settings.empty()) options.layers.push_back(settings_layer(arguments.settings));
  measure::BenchCase one = measure::profile_case(options);
  arguments.compute.check();
  const data::DataLocation location = arguments.data.location_for_lengths(arguments.valid_from_data, one.plan);
  check_named_file("--out", arguments.out);

  measure::BenchRun run = arguments.compute.start_bench();
  for (const std::string& warning : measure::suit_device({&one, 1}, run.device))
    note(fmt::format("warning: {}", warning));
  run.command = recorded_command();
  run.stop_requested = stop_signal_came;
  catch_stop_signals();
  Json report;
  {
    ProgressLine line(terminal_options(STDERR_FILENO));
    run.progress = [&](const std::string& text, double fraction) { line.update(text, fraction); };
    if (arguments.valid_from_data) measure::take_valid_lengths({&one, 1}, location, progress_callback(line));
    report = measure::run_profile(options, one, run);
    line.clear();
  }
  const std::string text = arguments.json ? report.dump(2) + "\n" : measure::profile_markdown(report);
  if (!arguments.out.empty()) write_file_atomically(arguments.out, text);
  if (arguments.json) fmt::print("{}", text);
  else print_markdown(text);
  return 0;
}

}  // namespace

std::function<int()> add_profile(CLI::App& program) {
  const auto arguments = std::make_shared<ProfileArguments>();
  measure::ProfileOptions& options = arguments->options;
  CLI::App& command =
      *program.add_subcommand("profile", "shows where a step's time goes, operator by operator, on random tokens");
  command.add_option("--model", options.model, "[family/]attention, e.g. softmax-fused")->required();
  command.add_option("--task", options.task, "whose vocabulary, classes and protocols")->capture_default_str();
  command.add_option("--protocol", options.protocol, "whose sizes; default: the task's first");
  command.add_option("--length", options.length, "tokens per sequence; default: the plan's")->check(whole_number(1));
  command.add_option("--batch", options.batch, "examples per step; default: the plan's")->check(whole_number(1));
  words(command.add_option("--mode", options.mode, "whole training steps, or forward passes"), {"train", "inference"})
      ->capture_default_str();
  command.add_option("--steps", options.steps, "timed steps, and as many with every operator timed")
      ->capture_default_str()
      ->check(whole_number(1));
  command.add_option("--warmup", options.warmup, "steps before, not timed; 1 at least")
      ->capture_default_str()
      ->check(whole_number(0));
  words(command.add_option("--precision", arguments->precision, "of the arithmetic (training.precision)"),
        {"fp32", "tf32", "bf16", "fp16"});
  command.add_flag("--valid-from-data", arguments->valid_from_data,
                   "as many valid tokens as the task's first training examples have, instead of all");
  arguments->data.add_to(command);
  command.add_option("--set", arguments->settings, "any option of the plan, key=value; again for more")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(true);
  command.add_flag("--json", arguments->json, "print the whole report as JSON (docs/profile.md)");
  command.add_option("--out", arguments->out, "also write there what is printed")->type_name("FILE");
  arguments->compute.add_to(command);
  return [arguments] { return profile(*arguments); };
}

}  // namespace xformer::engine
