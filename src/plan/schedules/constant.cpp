#include <algorithm>

#include "plan/schedule.h"

namespace xformer::plan::schedules::constant {

namespace {

ScheduleValues at(const ScheduleOptions& options, int64_t step) {
  const double ramp =
      options.warmup > 0 ? std::min(1.0, static_cast<double>(step + 1) / static_cast<double>(options.warmup)) : 1.0;
  return {options.learning_rate * ramp, options.beta1};
}

}  // namespace

ScheduleDescriptor describe() {
  return {.name = "constant",
          .summary = "one rate, behind a straight rise",
          .options = {"learning_rate", "warmup", "beta1"},
          .at = at};
}

}  // namespace xformer::plan::schedules::constant
