// A finished run opened again: its plan, data and trained model.
#pragma once

#include "data/datasets.h"
#include "models/model.h"
#include "plan/options.h"

namespace xformer::training {

struct TrainedRun {
  RunPlan plan;
  std::unique_ptr<data::DataSource> source;
  std::shared_ptr<models::Model> model;  // in evaluation, on the device
  at::Device device = at::kCPU;
  std::string weights_sha256;
};

// UserError when the folder holds no run; DataErrors of its data and weights, and when the data has no such split.
[[nodiscard]] TrainedRun open_run(const Path& folder, data::Split split, const data::DataLocation& location,
                                  at::Device device, const ProgressCallback& progress,
                                  const std::function<void(const std::string&)>& warn);

}  // namespace xformer::training
