// With w = max(warmup, 1): base min(1, t / w) (1 + cos(pi q)) / 2, q being the fraction of (t - w) / steps.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "plan/schedule.h"

namespace xformer::plan::schedules::cosine {

namespace {

ScheduleValues at(const ScheduleOptions& options, int64_t step) {
  const double t = static_cast<double>(step), warmup = static_cast<double>(std::max<int64_t>(options.warmup, 1));
  const double ramp = std::min(1.0, t / warmup);
  const double past = std::max(0.0, (t - warmup) / static_cast<double>(options.steps));
  const double turn = past - std::floor(past);
  return {options.learning_rate * ramp * 0.5 * (1 + std::cos(std::numbers::pi * turn)), options.beta1};
}

}  // namespace

ScheduleDescriptor describe() {
  return {.name = "cosine",
          .summary = "half a turn of a cosine, behind a straight rise",
          .options = {"learning_rate", "warmup", "beta1"},
          .at = at};
}

}  // namespace xformer::plan::schedules::cosine
