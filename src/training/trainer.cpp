#include "training/trainer.h"

#include "kernels/policy.h"
#include "tensor/torch_errors.h"
#include "training/loop.h"
#include "training/record.h"
#include "training/weights.h"

namespace xformer::training {

void check_device(const RunPlan& plan, const RunOptions& options) {
  set_float_products(plan.options.values["training.precision"], options.device);
  kernels::set_policy(kernels::parse_policy(options.kernels));
  static_cast<void>(make_recorder(options.cuda_graph, options.device, {}));
}

RunRecord train(const RunPlan& plan, const RunOptions& options, Observer& observer) {
  check_device(plan, options);
  // A folder is made once there is something to train on: a name without files leaves nothing behind.
  const auto open = [&] { return open_data(plan, options.data, observer.data_progress(), options.stop_requested); };
  std::unique_ptr<data::DataSource> source;
  const Standing standing = standing_of(options.out, plan, options.resume).kind;
  if (standing != Standing::kFinished) source = open();
  // What the folder holds is removed once nothing that can be looked at stands in the way of this run.
  if (standing == Standing::kReplaced) {
    static_cast<void>(course_of(plan, *source));
    prepare_model(
        *plan::build_model(plan, source->info().shape), plan, options.init_from, options.out, [](const std::string&) {},
        standing);
  }
  RunDirectory directory(options.out, plan, options.resume,
                         [&](const std::string& text) { observer.on_message("warning: " + text); });
  if (directory.finished_record()) return *directory.finished_record();
  if (!source) source = open();
  kernels::reset_backends();
  Loop loop(plan, options, observer, directory, std::move(source));
  const auto recorded = [&](const Loop::Ending& ending) {
    RunRecord record = loop.record(ending);
    write_file_atomically(directory.record_path(), to_json(record).dump(2) + "\n");
    return record;
  };
  Loop::Ending ending;
  try {
    try {
      ending = loop.run();
    } catch (...) {
      rethrow_translated(loop.what_is_kept(), "--micro-batch");
    }
  } catch (const Error& error) {
    try {
      recorded({status_of(error), error.what()});
    } catch (const std::exception& second) {
      // The first failure is the one to tell (a full disk refuses the record too, and a device that failed its sums).
      observer.on_message(fmt::format("warning: no record could be written: {}", second.what()));
    }
    observer.on_ended(error.what());
    throw;
  }
  RunRecord record = recorded(ending);
  if (ending.status == "interrupted") {
    observer.on_ended(ending.message);
    throw Interrupted(ending.message);
  }
  return record;
}

}  // namespace xformer::training
