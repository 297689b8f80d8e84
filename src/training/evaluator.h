// How well a model does over a split: one exact pass, remainder included, or the counts of mlpen's code
// (lra-recipe 7.1).
#pragma once

#include <functional>

#include "training/step.h"

namespace xformer::training {

struct Evaluation {
  double loss = 0;  // mean over examples
  Metric metric;
  std::optional<double> top5;  // where the data asks for it: the share whose label is among the five highest
  int64_t examples = 0;
  double seconds = 0;
};

struct Prediction {
  int64_t index = 0, label = 0, prediction = 0;  // of a class
  float target = 0;                              // where it is a number
  std::vector<float> scores;                     // the model's outputs: logits by class, one logit, or the number
};

struct EvaluationRequest {
  data::Split split = data::Split::kDev;
  int64_t batch = 32, padded_len = 0;
  std::string precision = "fp32";
  // Parity: only this many shuffled full batches of an endless dev loader, number `call` of them; 0: one exact pass.
  int64_t parity_batches = 0, call = 0;
  uint64_t seed = 0;
  bool drop_remainder = false;
  std::vector<Prediction>* predictions = nullptr;
  std::function<bool()> stop_requested;  // polled between batches
  std::function<void(int64_t done, int64_t total)> progress;
};

// A model's evaluations. What a batch needs is captured on a CUDA device once for each shape and kept from one
// evaluation to the next, so weights must change in place.
class Evaluator {
 public:
  Evaluator(models::Model& model, at::Device device, Recorder recorder = {});
  // nullopt when a stop was requested on the way.
  [[nodiscard]] std::optional<Evaluation> run(const data::DataSource& source, const EvaluationRequest& request);

 private:
  // Of one shape.
  struct Forward {
    tasks::DeviceBatch batch;
    at::Tensor logits;               // of the last batch
    at::Tensor loss, correct, top5;  // sums, float64 []
    std::unique_ptr<Replay> replay;
  };
  Forward& forward_for(const EvaluationRequest& request, const data::DataShape& shape);

  models::Model& model_;
  at::Device device_;
  Recorder recorder_;
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<Forward>> forwards_;  // by batch and length
};

}  // namespace xformer::training
