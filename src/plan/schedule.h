// Learning rate and beta1 as pure functions of the step (lra-recipe 6): nothing to store, nothing to resume. A schedule
// is one file of schedules/.
#pragma once

#include <cstdint>
#include <functional>

#include "core/registry.h"

namespace xformer::plan {

struct ScheduleOptions {
  std::string name = "constant";
  double learning_rate = 1e-3;  // peak (onecycle_linear), base (rsqrt, cosine, cosine_epochs) or the rate (constant)
  int64_t warmup = 0;           // steps
  int64_t steps = 1;            // of the whole schedule
  double beta1 = 0.9;           // where it is not cycled
  bool cycle_beta1 = false;
  int64_t steps_per_epoch = 1;
};

struct ScheduleValues {
  double learning_rate = 0, beta1 = 0;
};

// What schedules/<name>.cpp says about itself.
struct ScheduleDescriptor {
  std::string name;
  std::vector<std::string> aliases = {};
  std::string summary;
  std::vector<std::string> options;  // of "training.", that it reads
  // Of optimiser step t = 0, 1, ..., steps - 1.
  std::function<ScheduleValues(const ScheduleOptions& options, int64_t step)> at;
};
[[nodiscard]] const Registry<ScheduleDescriptor>& all_schedules();

[[nodiscard]] ScheduleValues schedule_at(const ScheduleOptions& options, int64_t step);

}  // namespace xformer::plan
