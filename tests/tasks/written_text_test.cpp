// Texts that are written: their loss against its definition, what counts as right, and metrics of whole texts.
#include <ATen/Functions.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "core/pair_symbols.h"
#include "scratch.h"
#include "tasks/answer_match.h"
#include "tasks/rouge.h"
#include "tasks/task.h"

namespace xformer::written_text_test {

using namespace tasks;

namespace {

constexpr int64_t kLength = 24, kLongestText = 8;

struct Pair {
  std::vector<std::string> right;  // each with its end, but the last where it fills the sequence
  std::string made;
};

data::DataShape shape_of(data::Judged judged) {
  return {.max_len = kLength,
          .vocabulary = kPairVocabulary,
          .sequences = 2,
          .target = data::text_target(kPairClasses, kLongestText, "byte", judged)};
}

data::HostBatch host_of(const data::DataShape& shape, const std::vector<Pair>& pairs, int64_t rows) {
  data::HostBatch host;
  host.reset(shape, rows, kLength);
  host.filled = static_cast<int64_t>(pairs.size());
  for (size_t row = 0; row < pairs.size(); ++row) {
    std::vector<uint16_t> source{10, 11}, texts;
    for (const std::string& one : pairs[row].right) {
      append_bytes(texts, one);
      if (static_cast<int64_t>(texts.size()) < kLength) texts.push_back(static_cast<uint16_t>(kEndId));
    }
    host.put(static_cast<int64_t>(row), data::Example{{source, texts}}, 0, 0);
    host.row_valid[row] = 1;
    host.indices[row] = static_cast<int64_t>(row);
  }
  return host;
}

// As the evaluator hands them over.
at::Tensor classes_of(const std::vector<Pair>& pairs) {
  at::Tensor classes = at::full({static_cast<int64_t>(pairs.size()), kLongestText}, -1, at::kLong);
  for (size_t row = 0; row < pairs.size(); ++row) {
    const std::string& made = pairs[row].made;
    for (size_t i = 0; i < made.size(); ++i)
      classes[static_cast<int64_t>(row)][static_cast<int64_t>(i)] = static_cast<uint8_t>(made[i]) + 1;
    if (static_cast<int64_t>(made.size()) < kLongestText)
      classes[static_cast<int64_t>(row)][static_cast<int64_t>(made.size())] = kEndClass;
  }
  return classes;
}

struct TextScores {
  std::map<std::string, double> metrics, constant;
  std::string predictions;
};
TextScores judge(data::Judged judged, const std::vector<Pair>& pairs) {
  const auto task = make_task(shape_of(judged));
  Meters meters(task->meters());
  const auto answers = task->answers();
  const data::HostBatch host = host_of(shape_of(judged), pairs, static_cast<int64_t>(pairs.size()));
  meters.add(classes_of(pairs), host);
  answers->add(classes_of(pairs), host);
  TextScores result;
  const std::vector<double> sums(static_cast<size_t>(meters.size()), 1);
  for (const Metric& metric : meters.read(sums).metrics) result.metrics[metric.spec.name] = metric.value;
  for (const Metric& metric : answers->constant_answer()) result.constant[metric.spec.name] = metric.value;
  const scratch::Folder folder;
  answers->write(folder / "predictions.csv", {});
  result.predictions = scratch::get(folder / "predictions.csv");
  return result;
}

}  // namespace

TEST_CASE("trained are the symbols of the first right text and its end", "[written]") {
  const data::DataShape shape = shape_of(data::Judged::kAnswer);
  const auto task = make_task(shape);
  CHECK((task->output().written == kLongestText && task->output().per_position && !task->output().causal));
  CHECK(task->output().columns == 257);
  const data::HostBatch host =
      host_of(shape, {{{"ab", "other"}, ""}, {{"longer than 8"}, ""}, {{""}, ""}, {{"1234567"}, ""}}, 5);
  DeviceBatch batch(at::kCPU, 5, kLength, shape);
  batch.load(host);
  const BatchView& view = batch.widened();
  const std::vector<std::vector<int64_t>> labels{
      {'a' + 1, 'b' + 1, 0},
      {'l' + 1, 'o' + 1, 'n' + 1, 'g' + 1, 'e' + 1, 'r' + 1, ' ' + 1, 't' + 1},
      {0},
      {'1' + 1, '2' + 1, '3' + 1, '4' + 1, '5' + 1, '6' + 1, '7' + 1, 0},
      {}};
  const at::Tensor scores =
      at::sin(at::arange(5 * kLongestText * 257, at::kDouble)).view({5, kLongestText, 257}).requires_grad_();
  double meant = 0, places = 0;
  const at::Tensor logs = scores.detach().log_softmax(-1);
  for (size_t row = 0; row < labels.size(); ++row)
    for (size_t i = 0; i < labels[row].size(); ++i, ++places)
      meant -= logs[static_cast<int64_t>(row)][static_cast<int64_t>(i)][labels[row][i]].item<double>();
  const at::Tensor loss = task->loss(scores, view);
  CHECK(loss.item<double>() == Approx(meant).epsilon(1e-12));
  CHECK(task->weight(view).item<double>() == places);
  loss.backward();
  CHECK(scores.grad().abs().sum(-1).gt(0).sum().item<double>() == places);
  // Batches of fewer places than a text may have (a bucket of short examples).
  CHECK(task->loss(scores.narrow(1, 0, 2), view).item<double>() < meant);
}

TEST_CASE("summaries are judged by ROUGE against all of the first right text", "[written]") {
  const std::vector<Pair> pairs{
      {{"the cat sat on the mat"}, "a cat"}, {{"dogs bark"}, "dog bark"}, {{"one", "two"}, "two"}, {{"x"}, ""}};
  TextScores scores = judge(data::Judged::kSummary, pairs);
  std::map<std::string, double> meant;
  for (const Pair& pair : pairs) {
    const auto right = rouge_words(pair.right.front()), made = rouge_words(pair.made);
    meant["rouge1"] += rouge_n(right, made, 1).f() / 4;
    meant["rouge2"] += rouge_n(right, made, 2).f() / 4;
    meant["rougeL"] += rouge_l(right, made).f() / 4;
  }
  CHECK(meant["rouge2"] > 0);
  for (const auto& [name, value] : meant) CHECK(scores.metrics.at(name) == Approx(value).epsilon(1e-14));
  // By hand: one of two words, of six; two of two; none; none.
  CHECK(scores.metrics.at("rouge1") == Approx((2 * 0.5 / 6 / (0.5 + 1.0 / 6) + 1 + 0 + 0) / 4).epsilon(1e-14));
  std::vector<Pair> reversed(pairs.rbegin(), pairs.rend());
  CHECK(judge(data::Judged::kSummary, reversed).metrics == scores.metrics);
  CHECK(metric_specs(*make_task(shape_of(data::Judged::kSummary))).front().name == "rouge1");
}

TEST_CASE("answers are judged by F1 and exact match against the best of those that are right", "[written]") {
  const std::vector<Pair> pairs{{{"Ann", "Ann Lee"}, "Ann Lee"}, {{"in Hull"}, "Hull"}, {{""}, ""}, {{"9"}, "8"}};
  TextScores scores = judge(data::Judged::kAnswer, pairs);
  CHECK(scores.metrics.at("exact_match") == 0.5);
  CHECK(scores.metrics.at("f1") == Approx((1 + 2.0 / 3 + 1 + 0) / 4));
  CHECK(metric_specs(*make_task(shape_of(data::Judged::kAnswer))).front().name == "f1");
}

TEST_CASE("the constant answer is the text that most examples share, and of symbols their distribution", "[written]") {
  TextScores scores = judge(data::Judged::kAnswer, {{{"no"}, "x"}, {{"no"}, "x"}, {{"yes", "no"}, "x"}, {{"9"}, "x"}});
  CHECK(scores.constant.at("exact_match") == 0.75);
  // Of n, o, n, o, y, e, s, 9 and four ends.
  const auto part = [](double count) { return -count / 12 * std::log2(count / 12); };
  CHECK(scores.constant.at("bits_per_byte") == Approx(2 * part(2) + 4 * part(1) + part(4)));
}

TEST_CASE("predictions hold what was written and what is right, whatever the bytes are", "[written]") {
  const TextScores scores = judge(data::Judged::kAnswer, {{{"a \"b\",c"}, "a\xff\n"}, {{"ok"}, "ok"}});
  CHECK(scores.predictions ==
        "index,written,right,f1,exact_match\n"
        "0,\"a\xef\xbf\xbd\n\",\"a \"\"b\"\",c\",0,0\n"
        "1,ok,ok,1,1\n");
}

}  // namespace xformer::written_text_test
