// Dev scores of runs by step, and under what conditions runs were made.
#pragma once

#include <string>
#include <vector>

#include "core/run_record.h"
#include "reporting/svg_plot.h"

namespace xformer::reporting {

struct CurveRuns {
  std::string model;
  std::vector<const RunRecord*> runs;  // one for each seed
};

// A line for each model that has a dev score: the mean over seeds, from the least to the most of them. Without series
// where there is none.
[[nodiscard]] Plot learning_curves(const std::string& task, const std::vector<CurveRuns>& models);

// "batch 32, fp32, 1 thread, cpu (AMD EPYC)": each different value once, what is not known left out.
[[nodiscard]] std::string conditions_of(const std::vector<const RunRecord*>& runs);

}  // namespace xformer::reporting
