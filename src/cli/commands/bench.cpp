// `xformer bench`: models side by side, in time and memory.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

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
  bool valid_from_data = false;
  DataArguments data;
  ComputeArguments compute;
};

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
  std::vector<training::BenchCase> cases = training::bench_cases(options);
  arguments.compute.check();
  check_place("--json", arguments.json);
  check_place("--markdown", arguments.markdown);
  data::DataLocation location;
  if (arguments.valid_from_data) {
    location = arguments.data.location(cases.front().plan.task);
    check_generator_options(cases.front().plan, location);
  }
  XF_CHECK(arguments.valid_from_data || arguments.data.folder.empty(), UserError,
           "--data: a bench reads no data without --valid-from-data");

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
    if (arguments.valid_from_data) training::take_valid_lengths(cases, location, progress_callback(line));
    PaceLines lines;
    if (options.paced) {
      run.turn = [&] { return lines.next(); };
      run.ready = [](const Json& row) { answer({{"event", "ready"}, {"row", row}}); };
      run.timed = [](const std::string& model, double milliseconds) {
        answer({{"event", "step"}, {"model", model}, {"ms", milliseconds}});
      };
    }
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
  command.add_flag("--paced", options.paced,
                   "a timed step for every line on standard input, answered by a line of JSON; for one model");
  command.add_flag("--valid-from-data", arguments->valid_from_data,
                   "as many valid tokens as the task's first training examples have, instead of all");
  arguments->data.add_to(command);
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
