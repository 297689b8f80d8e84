// What a training step's time is divided by.
#include "training/record.h"

#include <catch2/catch.hpp>

namespace xformer::training {

TEST_CASE("speed counts the filled rows of batches, on a host that waits and on one that does not") {
  StepClock waiting(/*asynchronous=*/false), free(/*asynchronous=*/true);
  // Fifteen cases, in batches of eight and seven.
  for (int64_t step = 0; step < 12; ++step)
    for (StepClock* clock : {&waiting, &free}) {
      clock->step(0.5, {step % 2 == 0 ? 8 : 7, 0.1, 0.3});
      if (step % 4 != 3) continue;
      const StepInterval interval = clock->close(0);
      CHECK((interval.steps == 4 && interval.examples == 30 && interval.seconds == 2));
    }
  const StepTimes each = waiting.times(), mean = free.times();
  CHECK(each.seconds == std::vector<double>(8, 0.5));  // the first four are warm-up
  CHECK(mean.seconds == std::vector<double>(2, 0.5));
  for (const StepTimes& times : {each, mean}) {
    CHECK(times.examples_per_step == 7.5);
    CHECK(times.input_share == Approx(0.2));    // waiting
    CHECK(times.input_seconds == Approx(0.3));  // work, which nobody need have waited for
    CHECK(speed_of(times).input_work_ms == Approx(300));
    CHECK(speed_of(times).examples_per_s.median == 15);
  }
}

}  // namespace xformer::training
