// A trained model as a Python file: a plain torch.nn.Module whose parameters have the names of model.safetensors.
#pragma once

#include <string>
#include <vector>

#include "core/run_plan.h"
#include "tensor/tensor_file.h"
#include "training/weights.h"

namespace xformer::inspect {

struct PytorchModule {
  std::string text;      // of the Python file
  NamedTensors tensors;  // of the safetensors file beside it, as the weights have them
};

// `stem`: the name of both files without its ending. UserError for a family, an attention or an option that has no
// fragment, with those that have one; DataError for weights that are not the plan's.
[[nodiscard]] PytorchModule pytorch_module(const RunPlan& plan, const training::Weights& weights,
                                           const std::string& stem);

// Names that have a fragment, sorted; of attentions without their `mrs-` forms, which follow.
[[nodiscard]] std::vector<std::string> pytorch_attentions();
[[nodiscard]] std::vector<std::string> pytorch_families();

}  // namespace xformer::inspect
