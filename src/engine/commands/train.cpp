// `xformer train`: from words to a record.
#include <fmt/format.h>

#include "core/text.h"
#include "engine/commands.h"
#include "engine/plan_arguments.h"
#include "engine/record_place.h"
#include "engine/signals.h"
#include "engine/train_view.h"
#include "sweep/cells.h"
#include "tensor/device.h"
#include "training/weights.h"

namespace xformer::engine {

namespace {

struct TrainArguments {
  PlanArguments plan;
  DataArguments data;
  ComputeArguments compute;
  std::string out, record_to, resume = "auto", dump_config;
  int64_t stop_after = 0, checkpoint_every = 0;
  bool dry_run = false;
};

Path run_folder(const TrainArguments& arguments, const RunPlan& plan) {
  return arguments.out.empty() ? sweep::place_below("runs", plan) : Path(arguments.out);
}

void print_dry_run(const RunPlan& plan, const Path& folder, const data::DataLocation& location, const Path& init_from) {
  // The data is not opened: of sets that only their files describe, a likely shape is shown.
  const auto model = plan::build_model(plan);
  training::prepare_model(*model, plan, init_from, folder, [](const std::string& line) { fmt::print("{}\n", line); });
  const int64_t length = plan::padded_len(plan);
  const attention::Cost cost = model->cost(1, length);
  fmt::print(
      "model      {} ({})\ntask       {} (protocol {})\nseed       {}\nplan       {}\nparameters {}\n"
      "forward    {:.4g} GFLOP per example at length {}\nsteps      {}\ndata       {}\nrun        {}\n",
      plan.name(), plan.family, plan.task, plan.protocol, plan.seed, plan.hash(),
      format_count(static_cast<uint64_t>(models::parameter_count(*model))), cost.flops_executed / 1e9, length,
      plan.options.values["training.steps"].get<int64_t>(),
      location.folder.empty() ? "generated" : location.folder.string(), folder.string());
}

int train(const TrainArguments& arguments) {
  const RunPlan plan = plan::resolve_plan(arguments.plan.request());
  arguments.compute.check();
  const training::Resume resume = training::parse_resume(arguments.resume);
  if (!arguments.dump_config.empty()) {
    XF_CHECK(arguments.dump_config == "full" || arguments.dump_config == "minimal", UserError,
             "--dump-config: expected full or minimal, got '{}'", arguments.dump_config);
    fmt::print("{}\n", plan.to_config(arguments.dump_config == "full").dump(2));
    return 0;
  }
  const Path folder = run_folder(arguments, plan);
  const data::DataLocation location = arguments.data.location(plan.task);
  check_generator_options(plan, location);
  if (arguments.dry_run) {
    print_dry_run(plan, folder, location, arguments.plan.init_from);
    return 0;
  }
  if (!arguments.record_to.empty()) check_results_folder(record_place(arguments.record_to, plan));

  training::check_preparation(plan, arguments.plan.init_from, folder);
  training::RunOptions options;
  options.out = folder;
  options.init_from = arguments.plan.init_from;
  options.data = location;
  options.deterministic = arguments.compute.deterministic == "on";
  options.kernels = arguments.compute.kernels;
  options.cuda_graph = arguments.compute.cuda_graph;
  options.stop_after = arguments.stop_after;
  options.checkpoint_every = arguments.checkpoint_every;
  options.resume = resume;
  options.command = recorded_command();
  options.stop_requested = stop_signal_came;
  options.device = arguments.compute.start();
  const bool was_finished = read_run_record(folder / "record.json").completed();
  catch_stop_signals();
  RunRecord record;
  {
    TrainView view(folder);
    record = training::train(plan, options, view);
  }
  if (was_finished) fmt::print("{} is finished already: nothing to do\n", folder.string());
  if (!arguments.record_to.empty() && record.completed()) {
    const Path place = record_place(arguments.record_to, plan);
    check_results_folder(place, record.dirty());
    std::error_code error;
    if (place.has_parent_path()) std::filesystem::create_directories(place.parent_path(), error);
    XF_CHECK(!error, ResourceError, "--record-to {}: cannot make its folder: {}", place.string(), error.message());
    write_file_atomically(place, to_json(record).dump(2) + "\n");
    fmt::print("recorded in {}\n", place.string());
  }
  if (record.completed()) {
    const MetricResult& test = *record.headline("test");
    fmt::print("test {} {:.4f} (constant answer {:.4f}), {:.1f} examples/s, peak memory {}\n", test.spec.name,
               *test.value, *test.chance, record.speed->examples_per_s.median,
               format_bytes(static_cast<uint64_t>(*record.peak_process_bytes)));
  } else {
    fmt::print("{}\n", record.message);
  }
  fmt::print("record {}\n", (folder / "record.json").string());
  return 0;
}

}  // namespace

std::function<int()> add_train(CLI::App& program) {
  const auto arguments = std::make_shared<TrainArguments>();
  CLI::App& command = *program.add_subcommand("train", "train a model on a task, to a record");
  arguments->plan.add_to(command);
  arguments->data.add_to(command);
  command.add_option("--out", arguments->out, "the run's directory; default: under runs/")->type_name("DIR");
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
  command.add_option("--resume", arguments->resume, "auto: go on if there is something; never; must")
      ->capture_default_str();
  arguments->compute.add_to(command);
  command.add_flag("--dry-run", arguments->dry_run, "say what would be done, with the model's size and cost, and stop");
  command.add_option("--dump-config", arguments->dump_config,
                     "print a file for --config that reproduces this: full or minimal");
  return [arguments] { return train(*arguments); };
}

}  // namespace xformer::engine
