// `xformer train --dry-run`: what the run would be, by the same checks.
#pragma once

#include "measure/step_probe.h"
#include "training/course.h"
#include "training/trainer.h"

namespace xformer::engine {

struct DryRun {
  bool probe = false;   // take five steps
  std::string records;  // a folder of earlier ones beside runs/; may be empty
};

// Prints it, and then throws what the run would throw for want of its data.
void print_dry_run(const RunPlan& plan, const training::RunOptions& options, const DryRun& how);

// Seconds of all steps and evaluations, from the time of a step of so many rows: a forward pass takes a third of it.
[[nodiscard]] double expected_seconds(const RunPlan& plan, const training::Course& course,
                                      const data::DataSource& source, int64_t rows, double step_seconds);

}  // namespace xformer::engine
