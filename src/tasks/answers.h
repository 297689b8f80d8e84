// Every answer over a split, gathered on the host: for predictions.csv, and for what a constant answer would reach.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "core/files.h"
#include "core/metric.h"
#include "tasks/batch.h"

namespace xformer::tasks {

// What the data calls an example and its classes; either may be unknown.
struct AnswerNames {
  std::vector<std::string> classes = {};                         // by label
  std::function<std::string(int64_t index)> file_of_index = {};  // "" where an example has no file of its own
};

class Answers {
 public:
  virtual ~Answers() = default;
  // The filled rows of a batch; their outputs in float32 on the host, or what was written (Meter::add).
  virtual void add(const at::Tensor& outputs, const data::HostBatch& batch) = 0;
  // CSV; names stand in columns behind all others.
  virtual void write(const Path& path, const AnswerNames& names) const = 0;
  // What the best answer that is the same for all examples reaches here, by metric.
  [[nodiscard]] virtual std::vector<Metric> constant_answer() const = 0;
};

// With quotes around what would break a row.
[[nodiscard]] std::string csv_field(const std::string& text);

// A metric that is the share of examples whose label is among so many guesses.
struct GuessMetric {
  MetricSpec spec;
  size_t guesses = 1;
};
// `label_name` and `prediction_name` of a label and of a prediction, and `file`, where they are known.
class NameColumns {
 public:
  NameColumns(const AnswerNames& names, int64_t first_index);
  // ",label_name,prediction_name,file"; for numbers ",file"; or "".
  [[nodiscard]] std::string head(bool labels) const;
  [[nodiscard]] std::string cells(int64_t index) const;
  [[nodiscard]] std::string cells(int64_t index, int64_t label, int64_t prediction) const;

 private:
  const AnswerNames& names_;
  bool files_;
};

// Of kinds that predict a class: index, label, prediction and one score (logit) for each column. The constant answer is
// the most frequent labels. `predict`: [b, columns] to classes [b].
[[nodiscard]] std::unique_ptr<Answers> label_answers(std::function<at::Tensor(const at::Tensor& scores)> predict,
                                                     std::vector<GuessMetric> metrics);

}  // namespace xformer::tasks
