// `xformer eval RUN_DIR`: accuracy or error of a trained run on a split, from its own or from other data.
#include <unistd.h>

#include <span>

#include "cli/progress.h"
#include "core/text.h"
#include "core/utf8.h"
#include "data/shifted_source.h"
#include "engine/commands.h"
#include "engine/plan_arguments.h"
#include "engine/signals.h"
#include "kernels/policy.h"
#include "tensor/device.h"
#include "training/evaluator.h"
#include "training/run_directory.h"
#include "training/trained_run.h"

namespace xformer::engine {

namespace {

struct EvalArguments {
  std::string run, split = "test", shift;
  int64_t shift_by = 1;
  DataArguments data;
  ComputeArguments compute;
  int64_t batch = 0;
  bool json = false;
};

// The hash of the data that a run was trained on; "" while it has no record.
std::string trained_on_data(const Path& run) {
  const RunRecord record = read_run_record(run / "record.json");
  return record.data ? record.data->sha256 : "";
}

int evaluate_run(const EvalArguments& arguments) {
  arguments.compute.check();
  const data::Split split = data::parse_split(arguments.split);
  const data::Shift shift =
      arguments.shift.empty() ? data::Shift{} : data::parse_shift(arguments.shift, arguments.shift_by);
  const std::string task = plan::stored_plan(training::read_plan(arguments.run)).task;
  data::DataLocation location = arguments.data.location(task);
  location.require_all_splits = false;
  const at::Device device = arguments.compute.start();
  kernels::set_policy(kernels::parse_policy(arguments.compute.kernels));
  catch_stop_signals();
  ProgressLine line(terminal_options(STDERR_FILENO));
  const training::TrainedRun run = training::open_run(arguments.run, split, location, device, progress_callback(line),
                                                      [&](const std::string& text) { line.print(text); });
  if (const std::string trained_on = trained_on_data(arguments.run);
      !trained_on.empty() && trained_on != run.source->info().sha256)
    line.print(fmt::format("note: this is other data than the run's: its SHA-256 is {}, the run's was {}",
                           run.source->info().sha256, trained_on));
  const auto options = plan::training_schema().read(run.plan.group("training"));
  const auto moved = arguments.shift.empty() ? nullptr : data::shifted(*run.source, shift);
  const data::DataSource& source = moved ? *moved : *run.source;
  training::EvaluationRequest request;
  request.split = split;
  request.batch = arguments.batch > 0 ? arguments.batch : options.batch;
  request.padded_len = plan::padded_len(run.plan, run.source->info().shape);
  request.precision = options.precision;
  if (!device.is_cuda() && (options.precision == "fp16" || options.precision == "tf32")) {
    request.precision = "fp32";
    line.print(fmt::format("evaluating in fp32: the run's {} is for CUDA", options.precision));
  }
  request.stop_requested = stop_signal_came;
  request.progress = [&](int64_t done, int64_t total) {
    line.update(fmt::format("evaluating {}  {}/{} batches", data::split_name(split), done, total),
                static_cast<double>(done) / static_cast<double>(total));
  };
  const auto recorder =
      training::make_recorder(arguments.compute.cuda_graph, device, [&](const std::string& text) { line.print(text); });
  const auto result = training::Evaluator(*run.model, tasks::make_task(run.source->info().shape), device, recorder)
                          .run(source, request);
  line.finish();
  if (!result) throw Interrupted("stopped by a signal; nothing was saved, nothing was lost");
  if (arguments.json) {
    const Metric& headline = result->headline();
    Json answer{{"run", as_utf8(arguments.run)},      {"split", data::split_name(split)},
                {headline.spec.name, headline.value}, {"loss", result->loss},
                {"examples", result->examples},       {"data", {{"sha256", run.source->info().sha256}}}};
    if (moved) answer["shift"] = {{"kind", arguments.shift}, {"places", arguments.shift_by}};
    for (const Metric& metric : result->metrics) answer[metric.spec.name] = metric.value;
    fmt::print("{}\n", answer.dump(2));
  } else {
    const std::string by = moved ? fmt::format(" ({} by {})", arguments.shift, arguments.shift_by) : "";
    // A text that is written is judged in several ways at once.
    const bool texts = tasks::make_task(run.source->info().shape)->output().written > 0;
    std::string metrics;
    for (const Metric& metric : std::span(result->metrics).first(texts ? result->metrics.size() : 1))
      metrics += fmt::format("{} {:.4f}, ", metric.spec.name, metric.value);
    fmt::print("{} {}{} {}loss {:.4f} over {} examples\n", run.plan.name(), data::split_name(split), by, metrics,
               result->loss, format_count(static_cast<uint64_t>(result->examples)));
  }
  return 0;
}

}  // namespace

std::function<int()> add_eval(CLI::App& program) {
  const auto arguments = std::make_shared<EvalArguments>();
  CLI::App& command = *program.add_subcommand("eval", "accuracy or error of a trained run on a split");
  command.add_option("RUN_DIR", arguments->run, "directory of the run")->required();
  command.add_option("--split", arguments->split, "train, dev or test")->capture_default_str();
  CLI::Option* const shift =
      command.add_option("--shift", arguments->shift,
                         "test on sequences that stand some places later: roll (cyclically) or drop-newest (the newest "
                         "places go, the oldest become padding)");
  command.add_option("--shift-by", arguments->shift_by, "places of --shift")
      ->check(whole_number(1))
      ->needs(shift)
      ->capture_default_str();
  arguments->data.add_to(command);
  command.add_option("--batch", arguments->batch, "examples per batch; default: as in training")
      ->check(whole_number(1));
  arguments->compute.add_to(command);
  command.add_flag("--json", arguments->json, "print JSON");
  return [arguments] { return evaluate_run(*arguments); };
}

}  // namespace xformer::engine
