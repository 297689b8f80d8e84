// A text that is written about a source: a summary, an answer. Examples are pairs of sequences of ids
// (core/pair_symbols.h): the source, and the texts that are right, each with its end, one behind the other.
//
// Trained is the first of them, symbol by symbol: the loss is the sum of cross entropies over its symbols and its end,
// up to the longest text that is written; its weight is their number. In evaluations the model also writes a text of
// its own, and that is judged as a whole: summaries by ROUGE (tasks/rouge.h) against the first right text, all of it,
// answers by F1 and exact match against the best of all (tasks/answer_match.h). The mean in bits stands beside them.
#include <ATen/Functions.h>

#include <algorithm>
#include <map>
#include <numbers>
#include <span>

#include "core/pair_symbols.h"
#include "tasks/answer_match.h"
#include "tasks/rouge.h"
#include "tasks/task.h"

namespace xformer::tasks::kinds::written_text {

namespace {

using data::kNoLabel;

struct Facts {
  int64_t classes = 0, written = 0;
  std::string symbol;    // "byte"
  bool answers = false;  // judged as answers, else as summaries
};

MetricSpec bits_metric(const Facts& facts) {
  return {"bits_per_" + facts.symbol, fmt::format("bits/{}", facts.symbol), "", false, 3};
}

// Labels [b,t] of tokens [b,2,n]: the first right text with its end, kNoLabel behind.
at::Tensor text_labels(const at::Tensor& tokens, int64_t written) {
  const at::Tensor text = tokens.select(1, 1).narrow(1, 0, std::min(written, tokens.size(2)));
  const at::Tensor ends = text.eq(kEndId), ended = ends.cumsum(1).sub(ends.to(at::kLong)).gt(0);
  return text.sub(kEndId).masked_fill(text.lt(kEndId).logical_or(ended), kNoLabel);
}

at::Tensor labels_of(const BatchView& batch, int64_t written) { return text_labels(batch.field("tokens"), written); }

// What a row of a batch holds as right: at least one text.
std::vector<std::string> right_texts(const data::HostBatch& batch, int64_t row) {
  const auto length = static_cast<size_t>(batch.padded_len);
  std::span<const int64_t> ids =
      std::span(batch.whole("tokens")).subspan((2 * static_cast<size_t>(row) + 1) * length, length);
  std::vector<std::string> result;
  while (!ids.empty() && ids.front() >= kEndId) {
    result.push_back(bytes_of_ids(ids));
    ids = ids.subspan(std::min(ids.size(), result.back().size() + 1));
  }
  if (result.empty()) result.emplace_back();
  return result;
}

// The text of a row of classes [b,t].
std::string made_text(const at::Tensor& classes, int64_t row) {
  const at::Tensor ids = classes[row].add(kEndId).to(at::kLong).contiguous();
  return bytes_of_ids(std::span(ids.const_data_ptr<int64_t>(), static_cast<size_t>(ids.numel())));
}

struct Score {
  MetricSpec spec;
  double (*value)(const std::string& text, const std::vector<std::string>& right);
};

// The headline first.
std::vector<Score> scores_of(const Facts& facts) {
  if (facts.answers)
    return {
        {{"f1", "F1", "%", true, 2},
         [](const std::string& text, const std::vector<std::string>& right) { return match_answer(text, right).f1; }},
        {{"exact_match", "exact match", "%", true, 2},
         [](const std::string& text, const std::vector<std::string>& right) {
           return match_answer(text, right).exact ? 1.0 : 0.0;
         }}};
  return {{{"rouge1", "ROUGE-1", "%", true, 2},
           [](const std::string& text, const std::vector<std::string>& right) {
             return rouge_n(rouge_words(right.front()), rouge_words(text), 1).f();
           }},
          {{"rouge2", "ROUGE-2", "%", true, 2},
           [](const std::string& text, const std::vector<std::string>& right) {
             return rouge_n(rouge_words(right.front()), rouge_words(text), 2).f();
           }},
          {{"rougeL", "ROUGE-L", "%", true, 2}, [](const std::string& text, const std::vector<std::string>& right) {
             return rouge_l(rouge_words(right.front()), rouge_words(text)).f();
           }}};
}

// The same in any order.
double mean_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

class TextMeter : public Meter {
 public:
  explicit TextMeter(Score score) : Meter(score.spec), score_(std::move(score)) {}
  bool on_host() const override { return true; }
  void add(const at::Tensor& classes, const data::HostBatch& batch) override {
    for (int64_t row = 0; row < classes.size(0); ++row)
      values_.push_back(score_.value(made_text(classes, row), right_texts(batch, row)));
  }
  double value(const Totals&) const override { return mean_of(values_); }

 private:
  Score score_;
  std::vector<double> values_;
};

// A row for each example: the text that was written, the first right one, and how well they agree.
class TextAnswers : public Answers {
 public:
  explicit TextAnswers(Facts facts) : facts_(std::move(facts)), scores_(scores_of(facts_)) {}

  void add(const at::Tensor& classes, const data::HostBatch& batch) override {
    for (int64_t row = 0; row < classes.size(0); ++row) {
      rows_.push_back({batch.indices[static_cast<size_t>(row)], made_text(classes, row), right_texts(batch, row)});
      const std::string& right = rows_.back().right.front();
      const auto most = static_cast<size_t>(facts_.written);
      for (size_t i = 0; i < std::min(right.size(), most); ++i) ++symbols_[static_cast<uint8_t>(right[i])];
      if (right.size() < most) ++symbols_[-1];
    }
  }

  void write(const Path& path, const AnswerNames& names) const override {
    const NameColumns more(names, rows_.front().index);
    write_file_atomically(path, [&](const ByteSink& sink) {
      std::string header = "index,written,right";
      for (const Score& score : scores_) header += "," + score.spec.name;
      sink(header + more.head(/*labels=*/false) + "\n");
      for (const Row& row : rows_) {
        std::string line = fmt::format("{},{},{}", row.index, csv_text(row.text), csv_text(row.right.front()));
        for (const Score& score : scores_) line += fmt::format(",{:.6g}", score.value(row.text, row.right));
        sink(line + more.cells(row.index) + "\n");
      }
    });
  }

  // The right text that most examples share (of several as frequent the first by its bytes), and of symbols their
  // distribution.
  std::vector<Metric> constant_answer() const override {
    std::map<std::string, int64_t> often;
    for (const Row& row : rows_) ++often[row.right.front()];
    const auto by_count = [](const auto& a, const auto& b) { return a.second < b.second; };
    const std::string& text = std::max_element(often.begin(), often.end(), by_count)->first;
    std::vector<Metric> result;
    for (const Score& score : scores_) {
      std::vector<double> values;
      for (const Row& row : rows_) values.push_back(score.value(text, row.right));
      result.push_back({score.spec, mean_of(std::move(values))});
    }
    double all = 0, entropy = 0;
    for (const auto& [symbol, count] : symbols_) all += count;
    for (const auto& [symbol, count] : symbols_) entropy -= count / all * std::log2(count / all);
    result.push_back({bits_metric(facts_), entropy});
    return result;
  }

 private:
  // Of bytes that a model made up; what is no UTF-8 as U+FFFD.
  static std::string csv_text(const std::string& bytes) {
    const Json readable = Json::parse(Json(bytes).dump(-1, ' ', false, Json::error_handler_t::replace));
    return csv_field(readable.get<std::string>());
  }

  struct Row {
    int64_t index;
    std::string text;
    std::vector<std::string> right;
  };
  Facts facts_;
  std::vector<Score> scores_;
  std::vector<Row> rows_;
  std::map<int64_t, double> symbols_;  // how often each of the right texts, -1 the end
};

class WrittenText : public Task {
 public:
  WrittenText(Facts facts, double smoothing) : facts_(std::move(facts)), smoothing_(smoothing) {}

  OutputSpec output() const override {
    return {.columns = facts_.classes, .per_position = true, .written = facts_.written};
  }

  at::Tensor weight(const BatchView& batch) const override {
    return labels_of(batch, facts_.written).ne(kNoLabel).sum(at::kDouble);
  }

  at::Tensor loss(const at::Tensor& outputs, const BatchView& batch) const override {
    XF_ASSERT(outputs.dim() == 3 && outputs.size(2) == facts_.classes, "{} outputs where the task needs {} at a place",
              outputs.size(-1), facts_.classes);
    const at::Tensor labels = text_labels(batch.field("tokens"), outputs.size(1));
    return at::cross_entropy_loss(outputs.flatten(0, 1), labels.flatten(), {}, at::Reduction::Sum, kNoLabel,
                                  smoothing_);
  }

  MeterList meters() const override {
    MeterList result;
    for (Score& score : scores_of(facts_)) result.push_back(std::make_unique<TextMeter>(std::move(score)));
    result.push_back(loss_meter(bits_metric(facts_), [](double nats) { return nats / std::numbers::ln2; }));
    return result;
  }

  std::unique_ptr<Answers> answers() const override { return std::make_unique<TextAnswers>(facts_); }

 private:
  Facts facts_;
  double smoothing_;
};

}  // namespace

TaskKind describe() {
  return {.name = "written-text",
          .summary = "a text about a source, which the model writes",
          .make = [](const data::DataShape& shape, const LossOptions& options) {
            const Json& facts = shape.target.parameters;
            return std::make_unique<WrittenText>(
                Facts{facts.at("classes"), facts.at("written"), facts.at("symbol"), facts.at("judged") == "answers"},
                options.label_smoothing);
          }};
}

}  // namespace xformer::tasks::kinds::written_text
