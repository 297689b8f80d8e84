// RAdam (Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond", 2020): AdamW with a rectified step.
#include "kernels/adamw/adamw.h"
#include "plan/update_rule.h"

namespace xformer::plan::optimizers::radam {

UpdateRule describe() {
  return {.name = "radam",
          .summary = "the same with a rectified step",
          .options = {"beta1", "beta2", "epsilon", "weight_decay"},
          .moments = {"exp_avg", "exp_avg_sq"},
          .apply = [](const OptimizerUpdate& now, const OptimizerOptions& options) {
            kernels::adamw(now.values, now.gradients, now.moments[0], now.moments[1],
                           {now.learning_rate, now.beta1, now.factor, now.step, now.skip},
                           {options.beta2, options.epsilon, options.weight_decay, /*rectified=*/true, now.decayed});
          }};
}

}  // namespace xformer::plan::optimizers::radam
