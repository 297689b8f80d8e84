#include "training/course.h"

#include "core/error.h"
#include "data/batches/lane_order.h"

namespace xformer::training {

namespace {

// A run reads all three splits, test at its very end.
void check_splits(const data::DatasetDescriptor& dataset, const data::DataLocation& location,
                  const data::DataSource& source) {
  std::string found, lacking, shares;
  for (const data::Split split : data::kAllSplits) {
    found += fmt::format("{}{} {}", found.empty() ? "" : ", ", data::split_name(split), source.size(split));
    if (source.size(split) == 0) lacking += (lacking.empty() ? "" : " and of ") + data::split_name(split);
  }
  for (const OptionInfo& option : dataset.options)
    if (option.name == "dev_share" || option.name == "test_share")
      shares += fmt::format("{} data.{}", shares.empty() ? ", or give another" : " or", option.name);
  XF_CHECK(lacking.empty(), DataError,
           "{}: expected examples of every split, found none of {} ({}): add some{} (`xformer data check` shows what "
           "there is)",
           location.folder.empty() ? dataset.name : location.folder.string(), lacking, found, shares);
}

}  // namespace

bool counts_epochs(const RunPlan& plan) {
  const auto options = plan::training_schema().read(plan.group("training"));
  return options.epochs > 0 || options.eval_epochs > 0 || options.warmup_epochs > 0;
}

data::OrderOptions training_order(const RunPlan& plan, const data::DataShape& shape) {
  const auto options = plan::training_schema().read(plan.group("training"));
  return {options.batch,
          plan::padded_len(plan, shape),
          options.buckets,
          derive_seed(static_cast<uint64_t>(plan.seed), "order"),
          data::batching_of(plan.group("data")),
          /*augment=*/true};
}

bool dev_is_test(const RunPlan& plan, const data::DataSource& source) {
  return source.info().dev_is_test() &&
         source.size(data::Split::kDev) == source.size(data::Split::kTest) &&  // unless --limit takes other parts
         !plan::eval_schema().read(plan.group("eval")).parity;
}

Course planned_course(const RunPlan& plan) {
  const auto options = plan::training_schema().read(plan.group("training"));
  return {options.steps, options.warmup, options.eval_every, 0};
}

Course course_of(const RunPlan& plan, const data::DataSource& source) {
  const auto options = plan::training_schema().read(plan.group("training"));
  Course course = planned_course(plan);
  const data::OrderOptions order = training_order(plan, source.info().shape);
  course.steps_per_epoch = data::make_training_order(source, order)->batches_per_epoch();
  if (options.epochs > 0) course.steps = options.epochs * course.steps_per_epoch;
  if (options.eval_epochs > 0) course.eval_every = options.eval_epochs * course.steps_per_epoch;
  if (options.warmup_epochs > 0) course.warmup = options.warmup_epochs * course.steps_per_epoch;
  return course;
}

std::unique_ptr<data::DataSource> open_data(const RunPlan& plan, const data::DataLocation& location,
                                            const ProgressCallback& progress,
                                            const std::function<bool()>& stop_requested) {
  const data::DatasetDescriptor& dataset = data::find_dataset(plan.task);
  auto source = dataset.open(plan.group("data"), location, [&](std::string_view what, uint64_t done, uint64_t total) {
    progress(what, done, total);
    if (stop_requested())
      throw Interrupted("stopped by a signal while the data was made ready; the same command goes on");
  });
  check_splits(dataset, location, *source);
  return source;
}

}  // namespace xformer::training
