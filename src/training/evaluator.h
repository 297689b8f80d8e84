// How well a model does over a split: one exact pass, remainder included, or the counts of mlpen's code
// (lra-recipe 7.1).
#pragma once

#include <functional>

#include "training/step.h"

namespace xformer::training {

struct Evaluation {
  double loss = 0;  // mean by the task's weight
  std::vector<Metric> metrics;
  int64_t examples = 0;
  double seconds = 0;
  // What models are selected and compared by.
  [[nodiscard]] const Metric& headline() const { return metrics.front(); }
};

struct EvaluationRequest {
  data::Split split = data::Split::kDev;
  int64_t batch = 32, padded_len = 0;
  std::string precision = "fp32";
  // Parity: only this many shuffled full batches of an endless dev loader, number `call` of them; 0: one exact pass.
  int64_t parity_batches = 0, call = 0;
  uint64_t seed = 0;
  bool drop_remainder = false;
  tasks::Answers* answers = nullptr;     // the task's, to be fed
  std::function<bool()> stop_requested;  // polled between batches
  std::function<void(int64_t done, int64_t total)> progress;
};

// A model's evaluations. What a batch needs is captured on a CUDA device once for each shape and kept from one
// evaluation to the next, so weights must change in place.
class Evaluator {
 public:
  Evaluator(models::Model& model, std::unique_ptr<const tasks::Task> task, at::Device device, Recorder recorder = {});
  // nullopt when a stop was requested on the way.
  [[nodiscard]] std::optional<Evaluation> run(const data::DataSource& source, const EvaluationRequest& request);
  [[nodiscard]] const tasks::Task& task() const { return *task_; }

 private:
  // Of one shape.
  struct Forward {
    tasks::DeviceBatch batch;
    at::Tensor outputs;    // of the last batch
    models::State memory;  // what the next batch begins with: the first rows of all
    std::unique_ptr<Replay> replay;
  };
  Forward& forward_for(const data::HostBatch& batch, const EvaluationRequest& request, const data::DataShape& shape);
  // What the model writes about the sources of a batch (tasks::Meter::add).
  [[nodiscard]] at::Tensor written(const tasks::BatchView& batch, const std::string& precision);

  models::Model& model_;
  std::unique_ptr<const tasks::Task> task_;
  tasks::Meters meters_;  // their device halves; an evaluation has host halves of its own
  at::Device device_;
  Recorder recorder_;
  at::Tensor sums_;       // of tasks::Meters
  models::State memory_;  // each with as many rows as the first evaluation's batch
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<Forward>> forwards_;  // by rows and length
};

}  // namespace xformer::training
