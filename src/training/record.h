// record.json: what a run was and what came of it, complete in itself. Schema in docs/record.md.
#pragma once

#include "training/step_clock.h"
#include "training/trainer.h"

namespace xformer::training {

inline constexpr int64_t kRecordSchema = 1;

// What the trainer knows at an ending; fields that were never reached stay at their defaults.
struct RunFacts {
  std::string status;   // completed, stopped, interrupted, diverged, out-of-memory, failed
  std::string message;  // of the failure
  std::optional<data::DataInfo> data;
  int64_t parameters = 0;
  double flops_forward = 0;  // per example, at the padded length
  int64_t padded_len = 0;
  std::string backend;
  int64_t steps_done = 0, steps_planned = 0;
  StepTimes times;  // of this process
  double examples_per_step = 0;
  double train_seconds = 0, evaluation_seconds = 0;
  int64_t recorded_steps = 0;           // lengths whose step was captured in a CUDA graph
  std::optional<double> energy_joules;  // of the device in this process, from the first step on, evaluations included
  Json state = Json::object();          // dev points, best, skipped steps, resumptions
  std::optional<Evaluation> test;
  Json selected_step;          // whose weights were tested; null before the test
  std::vector<Metric> chance;  // of the best constant answer in the test split
};

// "2026-11-21T07:16:30Z"
[[nodiscard]] std::string utc_now();

// p in [0, 1] of the sorted values, linearly interpolated; 0 for none.
[[nodiscard]] double quantile(std::vector<double> values, double p);

// Of a run that ended with this error: "diverged", "interrupted", "out-of-memory" or "failed".
[[nodiscard]] std::string status_of(const Error& error);

[[nodiscard]] Json make_record(const RunPlan& plan, const RunOptions& options, const RunFacts& facts);

}  // namespace xformer::training
