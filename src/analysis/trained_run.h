// A finished run opened for study: its plan, data and trained model.
#pragma once

#include "data/registry.h"
#include "training/forward.h"
#include "training/options.h"

namespace xformer::analysis {

struct TrainedRun {
  RunPlan plan;
  std::unique_ptr<data::DataSource> source;
  std::shared_ptr<models::Model> model;  // in evaluation, on the device
  at::Device device = at::kCPU;
  std::string weights_sha256;
};

// UserError when the folder holds no run; DataErrors of its data and weights.
[[nodiscard]] TrainedRun open_run(const Path& folder, const data::DataLocation& location, at::Device device,
                                  const ProgressCallback& progress,
                                  const std::function<void(const std::string&)>& warn);

// Queries, keys, values and result of one layer's attention over one example: q, k, v, mixed [s,h,n,d], valid [s,n];
// s sequences (two of a pair), n with what the model puts in front.
struct LayerTensors {
  at::Tensor q, k, v, mixed, valid;
  int64_t front = 0;  // places before the sequence: CLS
};

// Runs `count` examples of a split, drawn without repetition by `seed` (all, in order, where there are no more), one at
// a time, and hands over every layer. UserError where the model's layers do not report queries and keys: it has no
// attention of heads with its own projections. Returns how many examples there were.
int64_t for_each_layer(const TrainedRun& run, data::Split split, int64_t count, uint64_t seed,
                       const std::function<void(int64_t layer, const LayerTensors& tensors)>& visit,
                       const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace xformer::analysis
