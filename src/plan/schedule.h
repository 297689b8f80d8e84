// Learning rate and beta1 as pure functions of the step (lra-recipe 6): nothing to store, nothing to resume.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace xformer::plan {

struct ScheduleOptions {
  std::string name = "constant";  // one of schedule_names()
  double learning_rate = 1e-3;    // peak (onecycle_linear), base (rsqrt, cosine, cosine_epochs) or the rate (constant)
  int64_t warmup = 0;             // steps
  int64_t steps = 1;              // of the whole schedule
  double beta1 = 0.9;             // where it is not cycled
  bool cycle_beta1 = false;       // onecycle_linear: 0.95 -> 0.85 at the peak -> 0.95
  int64_t steps_per_epoch = 1;    // cosine_epochs: the rate changes between epochs only
};

struct ScheduleValues {
  double learning_rate = 0, beta1 = 0;
};

[[nodiscard]] const std::vector<std::string>& schedule_names();

// Values of optimiser step t = 0, 1, ..., steps - 1.
[[nodiscard]] ScheduleValues schedule_at(const ScheduleOptions& options, int64_t step);

}  // namespace xformer::plan
