// What a run will take, from five of its steps.
#pragma once

#include "measure/bench.h"

namespace xformer::measure {

struct StepCost {
  std::string status, message;  // as in a row of a bench: ok, too-large, out-of-memory
  double step_seconds = 0;      // of one that is ok
  int64_t memory_bytes = 0;     // most in tensors: measured, or as predicted of what does not fit; 0: not known
};

// On random input with every place filled: the real one's padding only makes steps shorter. `rows`: of a batch, where
// the data has fewer than the plan's.
[[nodiscard]] StepCost probe_steps(const RunPlan& plan, const data::DataShape& shape, int64_t rows,
                                   const BenchRun& run);

}  // namespace xformer::measure
