// Which evaluation's weights are selected, also where its headline is no number.
#include "training/selector.h"

#include <cmath>
#include <limits>

#include "run_setting.h"

namespace xformer::training {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN(), kInfinite = std::numeric_limits<double>::infinity();

// The steps, from 1, whose points are the best so far. `resumed`: the state goes through a checkpoint's JSON in
// between.
std::vector<int64_t> best_steps(const std::vector<double>& values, bool higher_is_better, bool resumed) {
  const auto model = plan::build_model(plan_with());
  const MetricSpec headline{"auc", "AUC", "", higher_is_better, 3};
  TrainingState state;
  Selector selector({}, state);
  std::vector<int64_t> result;
  for (const double value : values) {
    state.step = static_cast<int64_t>(state.dev.size()) + 1;
    if (selector.take({state.step, {{"auc", value}}, 1, 8}, headline, *model)) result.push_back(state.step);
    if (resumed) state = parse_training_state(Json::parse(to_json(state).dump()), "a test");
    CHECK(selector.selected_step() == result.back());
  }
  return result;
}

}  // namespace

TEST_CASE("the first evaluation is the best until one with a finite headline is, and then better ones") {
  const bool resumed = GENERATE(false, true);
  using Steps = std::vector<int64_t>;
  CHECK(best_steps({0.5, 0.4, 0.5, 0.6}, true, resumed) == Steps{1, 4});
  CHECK(best_steps({0.5, 0.4, 0.4, 0.6}, false, resumed) == Steps{1, 2});
  for (const double odd : {kNone, kInfinite, -kInfinite})
    for (const bool higher : {true, false}) {
      CHECK(best_steps({odd, odd, 0.5, odd, 0.5}, higher, resumed) == Steps{1, 3});
      CHECK(best_steps({0.5, odd, higher ? 0.6 : 0.4}, higher, resumed) == Steps{1, 3});
    }
}

}  // namespace xformer::training
