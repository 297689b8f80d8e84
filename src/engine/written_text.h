// What a trained encoder-decoder writes about a text (`xformer generate` of a run of summarise/<name> or qa/<name>).
#pragma once

#include <optional>
#include <string>

#include "core/run_plan.h"
#include "engine/plan_arguments.h"

namespace xformer::engine {

struct WriteArguments {
  std::string question;
  std::optional<int64_t> beams;  // nothing: as the run's options say
  std::optional<double> length_penalty;
};

// Prints the text, symbol by symbol where there is one beam, or JSON. `prompt`, from the option of this name, is what
// is read: as much of it as in training.
[[nodiscard]] int write_text(const RunPlan& plan, const std::string& run, const std::string& option,
                             const std::string& prompt, const WriteArguments& arguments,
                             const ComputeArguments& compute, bool json);

}  // namespace xformer::engine
