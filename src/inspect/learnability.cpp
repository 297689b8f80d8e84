#include "inspect/learnability.h"

#include <algorithm>

#include "core/error.h"
#include "training/evaluator.h"

namespace xformer::inspect {
namespace {

// The same data with a shorter training split.
class Shortened : public data::DataSource {
 public:
  Shortened(const data::DataSource& whole, int64_t images) : whole_(whole), images_(images) {}
  int64_t size(data::Split split) const override {
    return split == data::Split::kTrain ? std::min(images_, whole_.size(split)) : whole_.size(split);
  }
  data::Example read(data::Split split, int64_t index) const override { return whole_.read(split, index); }
  const data::DataInfo& info() const override { return whole_.info(); }

 private:
  const data::DataSource& whole_;
  int64_t images_;
};

}  // namespace

Learnability learnability(const data::DatasetDescriptor& dataset, const data::DataSource& source,
                          const LearnabilityOptions& options) {
  plan::PlanRequest request;
  request.task = dataset.name;
  request.model = "cnn";
  request.seed = static_cast<int64_t>(options.seed);
  const RunPlan plan = plan::resolve_plan(request);
  const Shortened shortened(source, options.images);
  for (const data::Split split : {data::Split::kTrain, data::Split::kDev})
    XF_CHECK(source.size(split) > 0, DataError, "{} has no {} split here", dataset.name, data::split_name(split));
  const data::DataShape& shape = source.info().shape;
  const auto model = plan::build_model(plan, shape);
  plan::TrainingOptions training;
  training.batch = options.batch;
  training::TrainStep step(*model, shape, training, at::kCPU);
  const int64_t length = plan::padded_len(plan, shape);
  const data::ExampleOrder order(shortened, data::Split::kTrain,
                                 {.batch = options.batch, .padded_len = length, .seed = options.seed});
  const int64_t in_epoch = order.batches_per_epoch(), steps = options.epochs * in_epoch;
  const plan::ScheduleOptions schedule{
      .name = "cosine", .learning_rate = 1e-3, .warmup = std::min<int64_t>(50, steps / 10), .steps = steps};
  data::HostBatch batch;
  for (int64_t i = 0; i < steps; ++i) {
    if (options.stop_requested()) throw Interrupted("stopped by a signal");
    const data::BatchRows rows = order.batch(i / in_epoch, i % in_epoch);
    fill_batch(shortened, data::Split::kTrain, rows, rows.width, batch);
    step.run(batch, i, plan::schedule_at(schedule, i));
    options.progress(i + 1, steps);
  }
  training::EvaluationRequest dev;
  dev.batch = options.batch;
  dev.padded_len = length;
  dev.stop_requested = options.stop_requested;
  const auto result = training::Evaluator(*model, tasks::make_task(shape), at::kCPU).run(source, dev);
  if (!result) throw Interrupted("stopped by a signal");
  return {result->headline().value, result->examples, shortened.size(data::Split::kTrain), options.epochs};
}

}  // namespace xformer::inspect
