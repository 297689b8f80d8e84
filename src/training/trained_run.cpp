#include "training/trained_run.h"

#include "training/run_directory.h"
#include "training/weights.h"

namespace xformer::training {

TrainedRun open_run(const Path& folder, data::Split split, const data::DataLocation& location, at::Device device,
                    const ProgressCallback& progress, const std::function<void(const std::string&)>& warn) {
  TrainedRun run;
  run.plan = plan::stored_plan(read_plan(folder));
  run.source = data::find_dataset(run.plan.task).open(run.plan.group("data"), location, progress);
  XF_CHECK(run.source->size(split) > 0, DataError, "{}: the data has no {} split",
           location.folder.empty() ? run.plan.task : location.folder.string(), data::split_name(split));
  run.model = plan::build_model(run.plan, run.source->info().shape);
  const Weights weights = read_weights(folder, warn);
  load_weights(*run.model, weights);
  run.weights_sha256 = weights.sha256;
  run.model->to(device);
  run.model->eval();
  run.device = device;
  return run;
}

}  // namespace xformer::training
