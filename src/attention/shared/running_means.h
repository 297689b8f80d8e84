// Means over steps of what each of them sums, as centroids of keys are kept (routing, combiner-learnable).
#pragma once

#include <torch/types.h>

#include <vector>

namespace xformer::attention {

// Of one shape: the mean, and the sums of the step that is not in it yet.
struct RunningMean {
  at::Tensor mean, step;
};

// mean = decay mean + (1 - decay) step, and the sums begin anew. The first decides for all: a step that is skipped
// because its numbers are none must not spoil the steps behind it.
inline void take_step(const std::vector<RunningMean>& means, double decay) {
  const at::Tensor& sums = means.front().step;
  const at::Tensor share = sums.isfinite().all().to(sums.scalar_type()) * (1 - decay);
  for (const auto& [mean, step] : means) {
    mean.lerp_(step.nan_to_num(0, 0, 0), share);
    step.zero_();
  }
}

}  // namespace xformer::attention
