// With w = max(warmup, 1): base min(1, t / w) / sqrt(max(t, w)), as LRA's own code has it.
#include <algorithm>
#include <cmath>

#include "plan/schedule.h"

namespace xformer::plan::schedules::rsqrt {

namespace {

ScheduleValues at(const ScheduleOptions& options, int64_t step) {
  const double t = static_cast<double>(step), warmup = static_cast<double>(std::max<int64_t>(options.warmup, 1));
  return {options.learning_rate * std::min(1.0, t / warmup) / std::sqrt(std::max(t, warmup)), options.beta1};
}

}  // namespace

ScheduleDescriptor describe() {
  return {.name = "rsqrt",
          .summary = "falls with the root of the step, behind a straight rise",
          .options = {"learning_rate", "warmup", "beta1"},
          .at = at};
}

}  // namespace xformer::plan::schedules::rsqrt
