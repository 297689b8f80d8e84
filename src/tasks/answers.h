// Every answer over a split, gathered on the host: for predictions.csv, and for what a constant answer would reach.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "core/files.h"
#include "core/metric.h"
#include "tasks/batch.h"

namespace xformer::tasks {

class Answers {
 public:
  virtual ~Answers() = default;
  // The filled rows of a batch; their outputs in float32 on the host.
  virtual void add(const at::Tensor& outputs, const data::HostBatch& batch) = 0;
  // CSV.
  virtual void write(const Path& path) const = 0;
  // What the best answer that is the same for all examples reaches here, by metric.
  [[nodiscard]] virtual std::vector<Metric> constant_answer() const = 0;
};

// A metric that is the share of examples whose label is among so many guesses.
struct GuessMetric {
  MetricSpec spec;
  size_t guesses = 1;
};
// Of kinds that predict a class: index, label, prediction and one score (logit) for each column. The constant answer is
// the most frequent labels. `predict`: [b, columns] to classes [b].
[[nodiscard]] std::unique_ptr<Answers> label_answers(std::function<at::Tensor(const at::Tensor& scores)> predict,
                                                     std::vector<GuessMetric> metrics);

}  // namespace xformer::tasks
