// What training puts into a run's record (core/run_record.h).
#pragma once

#include "training/evaluator.h"
#include "training/step_clock.h"
#include "training/trainer.h"

namespace xformer::training {

// "2026-11-21T07:16:30Z"
[[nodiscard]] std::string utc_now();

// p in [0, 1] of the sorted values, linearly interpolated; 0 for none.
[[nodiscard]] double quantile(std::vector<double> values, double p);

// Of a run that ended with this error: "diverged", "interrupted", "out-of-memory" or "failed".
[[nodiscard]] std::string status_of(const Error& error);

// `step`: of an evaluation during training.
[[nodiscard]] EvaluationPoint point_of(const Evaluation& evaluation, std::optional<int64_t> step = {});
// Of both splits, as far as they were reached; `chance` is what a constant answer reaches on test.
[[nodiscard]] std::vector<MetricResult> results_of(const std::vector<MetricSpec>& specs,
                                                   const std::optional<EvaluationPoint>& best_dev,
                                                   const std::optional<EvaluationPoint>& test,
                                                   const std::vector<Metric>& chance);
// What a test loses or gains by a shift of the data (data/shifted_source.h): "gini_change_roll".
[[nodiscard]] MetricSpec change_metric(MetricSpec headline, const std::string& shift);
[[nodiscard]] MetricResult change_of(const Metric& test, const Metric& shifted, const std::string& shift);
[[nodiscard]] RunRecord::Data data_of(const data::DataInfo& info);
// "dev", or "test" of data whose dev examples are its test split, as the code had them whose numbers are to be matched.
[[nodiscard]] std::string selection_split(const data::DataInfo& info);
// Of at least one timed step.
[[nodiscard]] RunRecord::Speed speed_of(const StepTimes& times);
// What this process is and has used: program, machine, memory, kernels, the time of day.
void add_process(const RunOptions& options, RunRecord& record);

}  // namespace xformer::training
