// A class at every place that has one, by a score for each class there: the next byte of a text, the value of a key.
// The loss is the sum of cross entropies over places with a label, its weight their number: places without one (-1, in
// empty rows and behind the end all of them) count in nothing.
//
// Where the sequence itself is predicted the headline is the mean in bits, ln 2 to a bit (tasks-more 11), with the
// symbol and the scoring protocol in its name; the best constant answer is then the distribution of the labels, whose
// bits are their entropy. Elsewhere it is the share of labels found. The share of sequences without a wrong place and
// the perplexity, e to the mean, stand beside them; of pieces of words the perplexity comes first (tasks-more 9), and
// behind it that of words, e to the sum over the words that begin with the places: it does not depend on how a text was
// cut into pieces.
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "tasks/task.h"

namespace xformer::tasks::kinds::per_position {

namespace {

using data::kNoLabel;

struct Facts {
  int64_t classes = 0;
  bool causal = true;
  std::string symbol, scoring;  // of a sequence that is predicted itself
  bool perplexity = false, words = false;
};

MetricSpec bits_metric(const Facts& facts) {
  return {"bits_per_" + facts.symbol, fmt::format("bits/{} ({})", facts.symbol, facts.scoring), "", false, 3};
}
MetricSpec perplexity_metric(const Facts& facts) {
  if (!facts.perplexity) return {"perplexity", "perplexity", "", false, 2};
  return {"perplexity", fmt::format("perplexity/{} ({})", facts.symbol, facts.scoring), "", false, 2};
}
MetricSpec word_metric(const Facts& facts) {
  return {"word_perplexity", fmt::format("perplexity/word ({})", facts.scoring), "", false, 2};
}
MetricSpec whole_metric() { return {"whole_sequences", "whole sequences", "%", true, 2}; }

double bits(double nats) { return nats / std::numbers::ln2; }
// What a model that has gone astray comes to is still a number.
double perplexity(double nats) { return std::exp(std::min(nats, 700.0)); }

at::Tensor labelled(const at::Tensor& labels) { return labels.ne(kNoLabel); }

// Outputs are scores [b,n,classes], or what a model made of them itself (models/place_loss.h), [b,n,1,2].
bool are_scores(const at::Tensor& outputs) { return outputs.dim() == 3; }

// [b,n], true where the label has the highest score; where there is no label it is no class's.
at::Tensor right_places(const at::Tensor& outputs, const at::Tensor& labels) {
  return are_scores(outputs) ? outputs.argmax(-1).eq(labels) : outputs.select(-1, 1).squeeze(-1).gt(0);
}

// Of all places in a row, 0 where there is no label; or their sum.
at::Tensor losses(const at::Tensor& outputs, const at::Tensor& labels, at::Reduction::Reduction reduction,
                  double smoothing = 0) {
  if (are_scores(outputs))
    return at::cross_entropy_loss(outputs.flatten(0, 1), labels.flatten(), {}, reduction, kNoLabel, smoothing);
  const at::Tensor made = outputs.select(-1, 0).flatten();
  return reduction == at::Reduction::Sum ? made.sum() : made;
}

// The share of sequences with labels all of which are found.
class WholeSequences : public Meter {
 public:
  WholeSequences() : Meter(whole_metric()) {}
  int64_t counts() const override { return 2; }
  std::vector<at::Tensor> count(const at::Tensor& outputs, const BatchView& batch) const override {
    const at::Tensor& labels = batch.field("label");
    const at::Tensor asked = labelled(labels).sum(1), found = right_places(outputs, labels).sum(1);
    return {asked.gt(0).logical_and(asked.eq(found)).sum(), asked.gt(0).sum()};
  }
  double value(const Totals& totals) const override {
    return totals.counted[1] > 0 ? totals.counted[0] / totals.counted[1] : 0;
  }
};

// e to the loss over the words that begin with the places: 0 where none does.
class WordPerplexity : public Meter {
 public:
  explicit WordPerplexity(const Facts& facts) : Meter(word_metric(facts)) {}
  int64_t counts() const override { return 1; }
  std::vector<at::Tensor> count(const at::Tensor&, const BatchView& batch) const override {
    return {batch.field("words").sum()};
  }
  double value(const Totals& totals) const override {
    return totals.counted[0] > 0 ? perplexity(totals.loss / totals.counted[0]) : 0;
  }
};

// The bits or the perplexity first.
template <class List, class Bits, class Perplexity>
void add_in_order(List& list, const Facts& facts, Bits bits_made, Perplexity perplexity_made) {
  if (facts.perplexity) {
    list.push_back(std::move(perplexity_made));
    list.push_back(std::move(bits_made));
  } else {
    list.push_back(std::move(bits_made));
    list.push_back(std::move(perplexity_made));
  }
}

// A row for each sequence: how many places it was asked about, how many it found, and their loss.
class PlaceAnswers : public Answers {
 public:
  explicit PlaceAnswers(Facts facts) : facts_(std::move(facts)) {}

  void add(const at::Tensor& outputs, const data::HostBatch& batch) override {
    const int64_t rows = outputs.size(0), length = outputs.size(1);
    const std::vector<int64_t>& all = batch.whole("label");
    const at::Tensor labels = at::from_blob(const_cast<int64_t*>(all.data()), {rows, length}, at::kLong);
    const at::Tensor asked = labelled(labels).sum(1), found = right_places(outputs, labels).sum(1);
    const at::Tensor nats =
        losses(outputs, labels, at::Reduction::None).view({rows, length}).sum(1, false, at::kDouble);
    for (int64_t row = 0; row < rows; ++row)
      rows_.push_back({batch.indices[static_cast<size_t>(row)], asked.const_data_ptr<int64_t>()[row],
                       found.const_data_ptr<int64_t>()[row], nats.const_data_ptr<double>()[row]});
    for (int64_t i = 0; i < rows * length; ++i)
      if (const int64_t label = all[static_cast<size_t>(i)]; label != kNoLabel) ++labels_[label];
    if (facts_.words)
      for (const int64_t words : batch.whole("words")) words_ += static_cast<double>(words);
  }

  void write(const Path& path, const AnswerNames& names) const override {
    const NameColumns more(names, rows_.front().index);
    write_file_atomically(path, [&](const ByteSink& sink) {
      sink(fmt::format("index,places,right,nats{}\n", more.head(/*labels=*/false)));
      for (const Row& row : rows_)
        sink(fmt::format("{},{},{},{:.9g}{}\n", row.index, row.places, row.right, row.nats, more.cells(row.index)));
    });
  }

  std::vector<Metric> constant_answer() const override {
    double places = 0, often = 0, entropy = 0;
    for (const auto& [label, count] : labels_) {
      places += count;
      often = std::max(often, count);
    }
    for (const auto& [label, count] : labels_) entropy -= count / places * std::log(count / places);
    const double accuracy = places > 0 ? often / places : 0;
    if (facts_.symbol.empty()) return {{accuracy_metric(), accuracy}};
    std::vector<Metric> result;
    add_in_order(result, facts_, Metric{bits_metric(facts_), bits(entropy)},
                 Metric{perplexity_metric(facts_), perplexity(entropy)});
    if (facts_.words) result.push_back({word_metric(facts_), words_ > 0 ? perplexity(entropy * places / words_) : 0});
    result.push_back({accuracy_metric(), accuracy});
    return result;
  }

 private:
  struct Row {
    int64_t index, places, right;
    double nats;
  };
  Facts facts_;
  std::vector<Row> rows_;
  std::map<int64_t, double> labels_;  // how often each
  double words_ = 0;
};

class PerPosition : public Task {
 public:
  PerPosition(Facts facts, double smoothing) : facts_(std::move(facts)), smoothing_(smoothing) {}

  OutputSpec output() const override {
    return {.columns = facts_.classes,
            .per_position = true,
            .causal = facts_.causal,
            .carries_state = facts_.scoring == "memory"};
  }

  at::Tensor weight(const BatchView& batch) const override { return labelled(batch.field("label")).sum(at::kDouble); }

  at::Tensor loss(const at::Tensor& outputs, const BatchView& batch) const override {
    XF_ASSERT(outputs.dim() == 4 || (outputs.dim() == 3 && outputs.size(2) == facts_.classes),
              "{} outputs where the task needs {} at a place", outputs.size(-1), facts_.classes);
    return losses(outputs, batch.field("label"), at::Reduction::Sum, smoothing_);
  }

  MeterList meters() const override {
    MeterList result;
    auto accuracy = mean_meter(accuracy_metric(), [](const at::Tensor& outputs, const BatchView& batch) {
      return right_places(outputs, batch.field("label")).sum();
    });
    if (facts_.symbol.empty()) {
      result.push_back(std::move(accuracy));
      result.push_back(std::make_unique<WholeSequences>());
      return result;
    }
    add_in_order(result, facts_, loss_meter(bits_metric(facts_), bits),
                 loss_meter(perplexity_metric(facts_), perplexity));
    if (facts_.words) result.push_back(std::make_unique<WordPerplexity>(facts_));
    result.push_back(std::move(accuracy));
    return result;
  }

  std::unique_ptr<Answers> answers() const override { return std::make_unique<PlaceAnswers>(facts_); }

 private:
  Facts facts_;
  double smoothing_;
};

}  // namespace

TaskKind describe() {
  return {
      .name = "per-position",
      .summary = "a class at every place that has one, such as the next byte",
      .fields = {"label"},
      .make = [](const data::DataShape& shape, const LossOptions& options) {
        const Json& facts = shape.target.parameters;
        return std::make_unique<PerPosition>(
            Facts{shape.target.classes(), facts.value("causal", true), facts.value("symbol", ""),
                  facts.value("scoring", ""), facts.value("headline", "") == "perplexity", shape.target.has("words")},
            options.label_smoothing);
      }};
}

}  // namespace xformer::tasks::kinds::per_position
