// PyTorch's OneCycleLR with its defaults and anneal_strategy="linear" (lra-recipe 6.1): starts at peak / 25, ends at
// start / 1e4; with p = warmup / T, the rise ends at u = p T - 1 and the fall at e = T - 1. Where beta1 is cycled it
// runs 0.95 -> 0.85 -> 0.95 against the rate.
#include <algorithm>

#include "plan/schedule.h"

namespace xformer::plan::schedules::onecycle_linear {

namespace {

ScheduleValues cycle(const ScheduleOptions& options, double t) {
  const double peak = options.learning_rate, start = peak / 25, end = start / 1e4;
  const double rise = static_cast<double>(options.warmup) - 1, last = static_cast<double>(options.steps) - 1;
  const auto between = [](double from, double to, double share) { return from + (to - from) * share; };
  if (t <= rise || last <= rise) {
    const double share = rise > 0 ? std::min(1.0, t / rise) : 1;
    return {between(start, peak, share), between(0.95, 0.85, share)};
  }
  const double share = std::min(1.0, (t - rise) / (last - rise));
  return {between(peak, end, share), between(0.85, 0.95, share)};
}

ScheduleValues at(const ScheduleOptions& options, int64_t step) {
  ScheduleValues values = cycle(options, static_cast<double>(step));
  if (!options.cycle_beta1) values.beta1 = options.beta1;
  return values;
}

}  // namespace

ScheduleDescriptor describe() {
  return {.name = "onecycle_linear",
          .summary = "a straight rise from a 25th of the peak, and a straight fall to nearly nothing",
          .options = {"learning_rate", "warmup", "beta1", "cycle_beta1"},
          .at = at};
}

}  // namespace xformer::plan::schedules::onecycle_linear
