// A whole model on given tokens and masks.
#pragma once

#include <optional>

#include "inspect/forward.h"
#include "training/weights.h"

namespace xformer::inspect {

struct ModelForward {
  RunPlan plan;
  std::optional<training::Weights> weights;  // none: the plan's seed draws them, and they are part of the result
  ForwardView view;
  at::Device device = at::kCPU;
};

// Inputs with their shapes, for one example of the greatest length.
[[nodiscard]] std::vector<ExpectedTensor> expected_tensors(const ModelForward& request);

// "logits" and what the view asks for; with labels or targets also "loss", the mean of the task's, which is then what
// gradients are of. Computed in the widest type of the weights, F32 at least, without dropout. UserError for inputs
// that do not fit.
[[nodiscard]] ForwardResult forward_model(const ModelForward& request, const TensorMap& inputs);

}  // namespace xformer::inspect
