// `xformer train`: from words to a record.
#include <fmt/format.h>

#include "cli/printed.h"
#include "core/text.h"
#include "engine/commands.h"
#include "engine/dry_run.h"
#include "engine/plan_arguments.h"
#include "engine/record_place.h"
#include "engine/signals.h"
#include "engine/train_view.h"
#include "sweep/cells.h"
#include "training/weights.h"

namespace xformer::engine {

namespace {

struct TrainArguments {
  PlanArguments plan;
  DataArguments data;
  ComputeArguments compute;
  std::string out, record_to, resume = "auto", dump_config;
  int64_t stop_after = 0, checkpoint_every = 0;
  bool dry_run = false, probe = false, overwrite = false, quiet = false;
};

Path run_folder(const TrainArguments& arguments, const RunPlan& plan) {
  return arguments.out.empty() ? sweep::place_below("runs", plan) : Path(arguments.out);
}

training::RunOptions run_options(const TrainArguments& arguments) {
  training::RunOptions options;
  options.init_from = arguments.plan.init_from;
  options.deterministic = arguments.compute.deterministic == "on";
  options.kernels = arguments.compute.kernels;
  options.cuda_graph = arguments.compute.cuda_graph;
  options.stop_after = arguments.stop_after;
  options.checkpoint_every = arguments.checkpoint_every;
  options.resume = training::parse_resume(arguments.resume);
  XF_CHECK(!arguments.overwrite || options.resume == training::Resume::kAuto, UserError,
           "--overwrite begins anew, --resume {} says otherwise; give one of them", arguments.resume);
  if (arguments.overwrite) options.resume = training::Resume::kOverwrite;
  options.command = recorded_command();
  options.stop_requested = stop_signal_came;
  return options;
}

void print_result(const RunRecord& record) {
  if (!record.completed()) {
    fmt::print("{}\n", record.message);
    return;
  }
  const MetricResult& test = *record.headline("test");
  fmt::print("test {} {:.4f} (constant answer {:.4f}), {}, peak memory of the process {}\n", test.spec.name,
             *test.value, *test.chance,
             record.speed ? fmt::format("{:.1f} examples/s", record.speed->examples_per_s.median)
                          : "speed not measured (too few steps)",
             format_bytes(static_cast<uint64_t>(*record.peak_process_bytes)));
  if (!record.not_comparable.empty()) fmt::print("not comparable: {}\n", record.not_comparable);
}

int train(const TrainArguments& arguments) {
  RunPlan plan = plan::resolve_plan(arguments.plan.request());
  arguments.compute.check();
  training::RunOptions options = run_options(arguments);
  XF_CHECK(arguments.dry_run || !arguments.probe, UserError, "--probe is how --dry-run learns time and memory");
  if (!arguments.dump_config.empty()) {
    XF_CHECK(arguments.dump_config == "full" || arguments.dump_config == "minimal", UserError,
             "--dump-config: expected full or minimal, got '{}'", arguments.dump_config);
    fmt::print("{}\n", plan.to_config(arguments.dump_config == "full").dump(2));
    return 0;
  }
  options.data = arguments.data.location(plan.task);
  check_generator_options(plan, options.data);
  options.device = arguments.compute.start();
  plan::suit_device(plan, options.device.is_cuda());
  for (const std::string& warning :
       {plan::precision_warning(plan, options.device.is_cuda()), plan::depth_warning(plan), plan::epochs_warning(plan)})
    if (!warning.empty()) cli::note(fmt::format("warning: {}", warning));
  options.out = run_folder(arguments, plan);
  if (arguments.dry_run) {
    print_dry_run(plan, options,
                  {arguments.probe, Path(arguments.record_to).extension() == ".json" ? "" : arguments.record_to});
    return 0;
  }
  if (!arguments.record_to.empty()) check_results_folder(record_place(arguments.record_to, plan));
  const training::Standing standing = training::standing_of(options.out, plan, options.resume).kind;
  training::check_preparation(plan, arguments.plan.init_from, options.out, standing);
  catch_stop_signals();
  RunRecord record;
  {
    TrainView view(options.out, arguments.quiet);
    record = training::train(plan, options, view);
  }
  if (standing == training::Standing::kFinished)
    fmt::print("{} is finished already: nothing to do\n", options.out.string());
  if (!arguments.record_to.empty() && record.completed()) {
    const Path place = record_place(arguments.record_to, plan);
    check_results_folder(place, record.dirty());
    if (place.has_parent_path()) make_folders(place.parent_path());
    write_file_atomically(place, to_json(record).dump(2) + "\n");
    fmt::print("recorded in {}\n", place.string());
  }
  print_result(record);
  fmt::print("record {}\n", (options.out / "record.json").string());
  return 0;
}

}  // namespace

std::function<int()> add_train(CLI::App& program) {
  const auto arguments = std::make_shared<TrainArguments>();
  CLI::App& command = *program.add_subcommand("train", "train a model on a task, to a record");
  arguments->plan.add_to(command);
  arguments->data.add_to(command);
  command.add_option("--out", arguments->out, "the run's directory; default: runs/TASK/MODEL/PLAN/SEED")
      ->type_name("DIR");
  command
      .add_option("--record-to", arguments->record_to,
                  "also put the record of the finished run there: a .json file, or a folder of records")
      ->type_name("PATH");
  command
      .add_option("--stop-after", arguments->stop_after,
                  "end early at this step under the unchanged plan, to be gone on with")
      ->check(whole_number(1));
  command
      .add_option("--checkpoint-every", arguments->checkpoint_every,
                  "steps between checkpoints; default: at every dev evaluation")
      ->check(whole_number(1));
  words(command.add_option("--resume", arguments->resume, "auto: go on if there is something"),
        {"auto", "never", "must"})
      ->capture_default_str();
  command.add_flag("--overwrite", arguments->overwrite, "begin anew, whatever run the directory holds");
  arguments->compute.add_to(command);
  command.add_flag("--dry-run", arguments->dry_run,
                   "check data, device and plan, say what would be done at what cost, and stop");
  command.add_flag("--probe", arguments->probe, "with --dry-run: take five steps to learn time and memory");
  command.add_flag("--quiet", arguments->quiet, "show warnings and the result only; run.log has the rest");
  words(command.add_option("--dump-config", arguments->dump_config, "print a file for --config that reproduces this"),
        {"full", "minimal"});
  return [arguments] { return train(*arguments); };
}

}  // namespace xformer::engine
