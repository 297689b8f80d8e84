// What a cell will take, from records of earlier runs.
#pragma once

#include "core/run_record.h"
#include "sweep/cells.h"

namespace xformer::sweep {

struct Estimate {
  double seconds = 0;
  double peak_bytes = 0;  // of the process, or of the device where that is more
  std::string from;       // "the same plan", "the same model and task", "other models, by operations"
};

class Estimator {
 public:
  // A run that was interrupted tells what it would have taken to its end; what failed or has no steps tells nothing.
  void learn(const RunRecord& record);
  // All records in a folder and below it, if it exists; files that are no records are passed over.
  void learn_folder(const Path& folder);
  // From runs of the same plan with any seed; else from runs of the same model on the same task and in the same size
  // (every option of model, attention and data, and the precision), their time scaled by steps and batch, their memory
  // by a larger batch. Nothing when there are none.
  [[nodiscard]] std::optional<Estimate> of(const RunPlan& plan) const;
  // Of `examples` in training, by what a forward pass of one takes: as fast as models compute that were run on the same
  // task, else on others. Memory is not known.
  [[nodiscard]] std::optional<Estimate> by_operations(const RunPlan& plan, double flops_per_example,
                                                      double examples) const;
  // The mean over all that is known; 0 of nothing.
  [[nodiscard]] double typical_seconds() const;

 private:
  struct Known {
    std::string hash, task, model;
    Json plan;
    double seconds = 0, batch = 0, examples = 0, peak_bytes = 0, flops = 0;  // flops: of all examples, forwards
  };
  std::vector<Known> known_;
};

}  // namespace xformer::sweep
