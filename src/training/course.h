// How long a run is. Where a plan counts epochs, the sizes of its data decide.
#pragma once

#include "data/batches/batch_order.h"
#include "plan/options.h"

namespace xformer::training {

struct Course {
  int64_t steps = 0, warmup = 0, eval_every = 0;
  int64_t steps_per_epoch = 0;  // 0: the data was not looked at
};

// Whether the plan counts something in epochs.
[[nodiscard]] bool counts_epochs(const RunPlan& plan);
// In which order training takes the examples.
[[nodiscard]] data::OrderOptions training_order(const RunPlan& plan, const data::DataShape& shape);
[[nodiscard]] Course course_of(const RunPlan& plan, const data::DataSource& source);
// Whether an evaluation of dev is one of test too: the same examples in the same order, all of them.
[[nodiscard]] bool dev_is_test(const RunPlan& plan, const data::DataSource& source);
// Of a plan that counts no epochs, without its data.
[[nodiscard]] Course planned_course(const RunPlan& plan);

// The run's data, which makes or packs it on first use. DataError where a split has no example.
[[nodiscard]] std::unique_ptr<data::DataSource> open_data(const RunPlan& plan, const data::DataLocation& location,
                                                          const ProgressCallback& progress,
                                                          const std::function<bool()>& stop_requested);

}  // namespace xformer::training
