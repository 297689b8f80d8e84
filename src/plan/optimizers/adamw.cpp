// AdamW (Loshchilov and Hutter 2019); Adam is the same without weight decay. The equations: kernels/adamw.
#include "kernels/adamw/adamw.h"
#include "plan/update_rule.h"

namespace xformer::plan::optimizers::adamw {

UpdateRule describe() {
  return {.name = "adamw",
          .summary = "Adam with decoupled weight decay",
          .options = {"beta1", "beta2", "epsilon", "weight_decay"},
          .moments = {"exp_avg", "exp_avg_sq"},
          .apply = [](const OptimizerUpdate& now, const OptimizerOptions& options) {
            kernels::adamw(now.values, now.gradients, now.moments[0], now.moments[1],
                           {now.learning_rate, now.beta1, now.factor, now.step, now.skip},
                           {options.beta2, options.epsilon, options.weight_decay, /*rectified=*/false, now.decayed});
          }};
}

}  // namespace xformer::plan::optimizers::adamw
