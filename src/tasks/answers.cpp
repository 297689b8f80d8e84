#include "tasks/answers.h"

#include <algorithm>
#include <map>

#include "core/error.h"

namespace xformer::tasks {

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string result = "\"";
  for (const char letter : text) result += letter == '"' ? "\"\"" : std::string(1, letter);
  return result + "\"";
}

namespace {

class LabelAnswers : public Answers {
 public:
  LabelAnswers(std::function<at::Tensor(const at::Tensor&)> predict, std::vector<GuessMetric> metrics)
      : predict_(std::move(predict)), metrics_(std::move(metrics)) {}

  void add(const at::Tensor& outputs, const data::HostBatch& batch) override {
    const at::Tensor predictions = predict_(outputs);
    const std::vector<int64_t>& labels = batch.whole("label");
    const int64_t columns = outputs.size(1);
    for (int64_t row = 0; row < outputs.size(0); ++row) {
      const auto at = static_cast<size_t>(row);
      const float* const begin = outputs.const_data_ptr<float>() + row * columns;
      rows_.push_back(
          {batch.indices[at], labels[at], predictions.const_data_ptr<int64_t>()[row], {begin, begin + columns}});
    }
  }

  void write(const Path& path, const AnswerNames& names) const override {
    const NameColumns more(names, rows_.front().index);
    write_file_atomically(path, [&](const ByteSink& sink) {
      std::string header = "index,label,prediction";
      for (size_t i = 0; i < rows_.front().scores.size(); ++i) header += fmt::format(",score_{}", i);
      sink(header + more.head(/*labels=*/true) + "\n");
      for (const Row& row : rows_)
        sink(fmt::format("{},{},{},{:.6g}{}\n", row.index, row.label, row.prediction, fmt::join(row.scores, ","),
                         more.cells(row.index, row.label, row.prediction)));
    });
  }

  std::vector<Metric> constant_answer() const override {
    std::map<int64_t, double> labels;
    for (const Row& row : rows_) ++labels[row.label];
    std::vector<double> often;
    for (const auto& [label, count] : labels) often.push_back(count);
    std::sort(often.begin(), often.end(), std::greater<>());
    std::vector<Metric> result;
    for (const auto& [spec, guesses] : metrics_) {
      double right = 0;
      for (size_t i = 0; i < std::min(guesses, often.size()); ++i) right += often[i];
      result.push_back({spec, right / static_cast<double>(rows_.size())});
    }
    return result;
  }

 private:
  struct Row {
    int64_t index, label, prediction;
    std::vector<float> scores;
  };
  std::function<at::Tensor(const at::Tensor&)> predict_;
  std::vector<GuessMetric> metrics_;
  std::vector<Row> rows_;
};

}  // namespace

NameColumns::NameColumns(const AnswerNames& names, int64_t first_index)
    : names_(names), files_(names.file_of_index && !names.file_of_index(first_index).empty()) {}

std::string NameColumns::head(bool labels) const {
  return fmt::format("{}{}", labels && !names_.classes.empty() ? ",label_name,prediction_name" : "",
                     files_ ? ",file" : "");
}

std::string NameColumns::cells(int64_t index) const {
  return files_ ? "," + csv_field(names_.file_of_index(index)) : "";
}

std::string NameColumns::cells(int64_t index, int64_t label, int64_t prediction) const {
  std::string result;
  if (!names_.classes.empty())
    for (const int64_t one : {label, prediction})
      result += "," + csv_field(names_.classes.at(static_cast<size_t>(one)));
  return result + cells(index);
}

std::unique_ptr<Answers> label_answers(std::function<at::Tensor(const at::Tensor&)> predict,
                                       std::vector<GuessMetric> metrics) {
  return std::make_unique<LabelAnswers>(std::move(predict), std::move(metrics));
}

}  // namespace xformer::tasks
