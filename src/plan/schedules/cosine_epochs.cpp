// DeiT's (timm's CosineLRScheduler as its main.py sets it): a straight line from 1e-6 over the epochs of the warm-up,
// of which no part is left out of the turn that follows, from the rate down to 1e-5. It changes between epochs only.
#include <cmath>
#include <numbers>

#include "plan/schedule.h"

namespace xformer::plan::schedules::cosine_epochs {

namespace {

ScheduleValues at(const ScheduleOptions& options, int64_t step) {
  constexpr double kFirst = 1e-6, kLast = 1e-5;
  const auto in_epochs = [&](int64_t steps) {
    return static_cast<double>(steps) / static_cast<double>(options.steps_per_epoch);
  };
  const auto epoch = static_cast<double>(step / options.steps_per_epoch);
  const double warmup = in_epochs(options.warmup), epochs = in_epochs(options.steps);
  if (epoch < warmup) return {kFirst + (options.learning_rate - kFirst) * epoch / warmup, options.beta1};
  const double turn = 0.5 * (1 + std::cos(std::numbers::pi * epoch / epochs));
  return {kLast + (options.learning_rate - kLast) * turn, options.beta1};
}

}  // namespace

ScheduleDescriptor describe() {
  return {.name = "cosine_epochs",
          .summary = "DeiT's: a rise from 1e-6 and half a turn down to 1e-5, by epochs",
          .options = {"learning_rate", "warmup", "beta1"},
          .at = at};
}

}  // namespace xformer::plan::schedules::cosine_epochs
