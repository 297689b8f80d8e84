#include "plan/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace xformer::plan {

namespace {

// PyTorch's OneCycleLR with its defaults and anneal_strategy="linear" (lra-recipe 6.1): starts at peak / 25, ends at
// start / 1e4; with p = warmup / T, the rise ends at u = p T - 1 and the fall at e = T - 1.
ScheduleValues onecycle_linear(const ScheduleOptions& options, double t) {
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

// DeiT's (timm's CosineLRScheduler as its main.py sets it): a straight line from 1e-6 over the epochs of the warm-up,
// of which no part is left out of the turn that follows, from the rate down to 1e-5.
double cosine_epochs(const ScheduleOptions& options, int64_t step) {
  constexpr double kFirst = 1e-6, kLast = 1e-5;
  const auto in_epochs = [&](int64_t steps) {
    return static_cast<double>(steps) / static_cast<double>(options.steps_per_epoch);
  };
  const auto epoch = static_cast<double>(step / options.steps_per_epoch);
  const double warmup = in_epochs(options.warmup), epochs = in_epochs(options.steps);
  if (epoch < warmup) return kFirst + (options.learning_rate - kFirst) * epoch / warmup;
  return kLast + (options.learning_rate - kLast) * 0.5 * (1 + std::cos(std::numbers::pi * epoch / epochs));
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> kNames{"constant", "onecycle_linear", "rsqrt", "cosine", "cosine_epochs"};
  return kNames;
}

ScheduleValues schedule_at(const ScheduleOptions& options, int64_t step) {
  const double t = static_cast<double>(step), warmup = static_cast<double>(std::max<int64_t>(options.warmup, 1));
  const double ramp = std::min(1.0, t / warmup);
  if (options.name == "onecycle_linear") {
    ScheduleValues values = onecycle_linear(options, t);
    if (!options.cycle_beta1) values.beta1 = options.beta1;
    return values;
  }
  if (options.name == "rsqrt") return {options.learning_rate * ramp / std::sqrt(std::max(t, warmup)), options.beta1};
  if (options.name == "cosine") {
    const double past = std::max(0.0, (t - warmup) / static_cast<double>(options.steps));
    const double turn = past - std::floor(past);
    return {options.learning_rate * ramp * 0.5 * (1 + std::cos(std::numbers::pi * turn)), options.beta1};
  }
  if (options.name == "cosine_epochs") return {cosine_epochs(options, step), options.beta1};
  if (options.name == "constant")
    return {options.learning_rate * (options.warmup > 0 ? std::min(1.0, (t + 1) / warmup) : 1.0), options.beta1};
  throw InternalError("unknown schedule " + options.name);
}

}  // namespace xformer::plan
