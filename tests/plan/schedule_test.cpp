// Learning rates against the recipe's own numbers (lra-recipe 6, 13.4 and 13.5).
#include "plan/schedule.h"

#include "plan/options.h"
#include "plan/update_rule.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace xformer::plan {

namespace {

ScheduleOptions onecycle() { return {"onecycle_linear", 1e-4, 1000, 5000, 0.9, true}; }

}  // namespace

TEST_CASE("onecycle_linear starts at peak / 25, peaks at warm-up - 1, ends at start / 1e4") {
  const ScheduleOptions options = onecycle();
  CHECK(schedule_at(options, 0).learning_rate == Approx(4e-6).epsilon(1e-12));
  CHECK(schedule_at(options, 999).learning_rate == Approx(1e-4).epsilon(1e-12));
  CHECK(schedule_at(options, 4999).learning_rate == Approx(4e-10).epsilon(1e-9));
  // Half way down: u = 999, e = 4999, the middle is t = 2999.
  CHECK(schedule_at(options, 2999).learning_rate == Approx((1e-4 + 4e-10) / 2).epsilon(1e-12));
  // A third of the way up: t = 333 of 999.
  CHECK(schedule_at(options, 333).learning_rate == Approx(4e-6 + (1e-4 - 4e-6) / 3).epsilon(1e-12));
}

TEST_CASE("onecycle_linear cycles beta1 from 0.95 down to 0.85 at the peak and back") {
  const ScheduleOptions options = onecycle();
  CHECK(schedule_at(options, 0).beta1 == Approx(0.95));
  CHECK(schedule_at(options, 999).beta1 == Approx(0.85));
  CHECK(schedule_at(options, 2999).beta1 == Approx(0.90));
  CHECK(schedule_at(options, 4999).beta1 == Approx(0.95));
  ScheduleOptions fixed = options;
  fixed.cycle_beta1 = false;
  CHECK(schedule_at(fixed, 999).beta1 == 0.9);
}

TEST_CASE("a schedule of one or two steps has finite rates") {
  for (const int64_t steps : {1, 2, 3}) {
    for (int64_t warmup = 0; warmup <= steps; ++warmup) {
      const ScheduleOptions options{"onecycle_linear", 1e-4, warmup, steps, 0.9, true};
      for (int64_t t = 0; t < steps; ++t) {
        CHECK(std::isfinite(schedule_at(options, t).learning_rate));
        CHECK(schedule_at(options, t).learning_rate <= 1e-4);
      }
    }
  }
}

TEST_CASE("rsqrt rises to base / sqrt(warm-up) and falls with the root of the step") {
  const ScheduleOptions options{"rsqrt", 0.05, 1000, 5000, 0.9, false};
  CHECK(schedule_at(options, 0).learning_rate == 0);
  CHECK(schedule_at(options, 500).learning_rate == Approx(0.05 * 0.5 / std::sqrt(1000.0)));
  CHECK(schedule_at(options, 1000).learning_rate == Approx(1.58e-3).epsilon(1e-2));
  CHECK(schedule_at(options, 4000).learning_rate == Approx(0.05 / std::sqrt(4000.0)));
}

TEST_CASE("cosine ramps up, then turns half a circle") {
  const ScheduleOptions options{"cosine", 1e-3, 100, 1000, 0.9, false};
  CHECK(schedule_at(options, 0).learning_rate == 0);
  CHECK(schedule_at(options, 100).learning_rate == Approx(1e-3));
  CHECK(schedule_at(options, 600).learning_rate == Approx(0.5e-3));
  CHECK(schedule_at(options, 1099).learning_rate == Approx(0).margin(1e-8));
}

TEST_CASE("cosine_epochs rises over DeiT's five epochs and falls from its fifth to its three hundredth, by epochs") {
  ScheduleOptions options{"cosine_epochs", 1e-3, 5 * 1251, 300 * 1251, 0.9, false, 1251};
  const auto at_epoch = [&](int64_t epoch) { return schedule_at(options, epoch * 1251).learning_rate; };
  CHECK(at_epoch(0) == Approx(1e-6).epsilon(1e-12));
  CHECK(at_epoch(4) == Approx(1e-6 + 0.8 * (1e-3 - 1e-6)).epsilon(1e-12));
  const double pi = std::acos(-1.0);
  CHECK(at_epoch(5) == Approx(1e-5 + 0.5 * (1e-3 - 1e-5) * (1 + std::cos(pi * 5 / 300))).epsilon(1e-12));
  CHECK(at_epoch(150) == Approx(0.5 * (1e-3 + 1e-5)).epsilon(1e-12));
  CHECK(at_epoch(299) == Approx(1e-5 + 0.5 * (1e-3 - 1e-5) * (1 + std::cos(pi * 299 / 300))).epsilon(1e-12));
  CHECK(schedule_at(options, 151 * 1251 - 1).learning_rate == at_epoch(150));
  CHECK(schedule_at(options, 151 * 1251).learning_rate < at_epoch(150));
}

TEST_CASE("schedules and optimisers name options of training that exist, and its help says them") {
  std::map<std::string, std::string> help;
  for (const OptionInfo& option : training_schema().options()) help[option.name] = option.help;
  const auto check = [&](const auto& registry, const std::string& option) {
    for (const auto& one : registry.all()) {
      INFO(one.name);
      CHECK(help.at(option).find(one.name + ", " + one.summary) != std::string::npos);
      for (const std::string& name : one.options) CHECK(help.count(name) == 1);
    }
  };
  check(all_schedules(), "schedule");
  check(all_optimizers(), "optimizer");
  CHECK_THROWS_AS(all_schedules().get("linear"), UserError);
}

}  // namespace xformer::plan
