// How an optimiser changes parameters: its update of flat buffers. One file of optimizers/ each; what all of them share
// (clipping, loss scale, steps that are skipped) is training/optimizer.h.
#pragma once

#include <torch/types.h>

#include <functional>

#include "core/registry.h"

namespace xformer::plan {

struct OptimizerOptions {
  double beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
};

// All parameters as one flat vector, and all that one update reads. The scalars are float64 [] on the
// same device, because a captured step must see them change.
struct OptimizerUpdate {
  at::Tensor values, gradients;
  int64_t decayed;                  // elements in front to which weight decay applies
  std::vector<at::Tensor> moments;  // in the descriptor's order, 0 before the first update
  at::Tensor learning_rate, beta1;
  at::Tensor factor;  // of the gradient: clipping, inverse loss scale
  at::Tensor step;    // counted from 1, this update included
  at::Tensor skip;    // not 0: leave everything as it is, whatever the gradient holds
};

// What optimizers/<name>.cpp says about itself.
struct UpdateRule {
  std::string name;
  std::vector<std::string> aliases = {};
  std::string summary;
  std::vector<std::string> options;  // of "training.", that it reads
  std::vector<std::string> moments;  // what it remembers of every element, by the names in checkpoints
  std::function<void(const OptimizerUpdate& update, const OptimizerOptions& options)> apply;
};
[[nodiscard]] const Registry<UpdateRule>& all_optimizers();

}  // namespace xformer::plan
