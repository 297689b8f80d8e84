// Beam search over a model that is a table: few beams against a search in plain loops, ties, the length penalty, and
// that a row's memory follows its text.
#include "models/text_search.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "core/pair_symbols.h"
#include "core/random.h"
#include "models/decoding.h"

namespace xformer::models::text_search_test {

namespace {

using Text = std::vector<int64_t>;
using Scores = std::function<std::vector<double>(int64_t source, const Text& text)>;

// Scores are a function of the source's first id and of what was written, which only the memory of the row knows.
class Table : public WritingModel {
 public:
  Table(int64_t longest, Scores scores) : longest_(longest), scores_(std::move(scores)) {}
  [[nodiscard]] int64_t longest_text() const override { return longest_; }
  [[nodiscard]] SearchOptions search() const override { return {}; }
  [[nodiscard]] Writing read(const ModelInput& input) override {
    Writing writing;
    writing.sources = {State{{"first", input.tokens.select(1, 0).select(1, 0)}}};
    writing.written.memory["text"] = at::zeros({input.tokens.size(0), 0}, at::kLong);
    return writing;
  }
  at::Tensor decode(const at::Tensor& ids, Writing& so_far) override {
    at::Tensor& text = so_far.written.memory.at("text");
    text = at::cat({text, ids}, 1);
    std::vector<at::Tensor> rows;
    for (int64_t row = 0; row < text.size(0); ++row) {
      Text written;
      for (int64_t i = 1; i < text.size(1); ++i) written.push_back(text[row][i].item<int64_t>() - kEndId);
      rows.push_back(at::tensor(scores_(so_far.sources[0].at("first")[row].item<int64_t>(), written), at::kDouble));
    }
    return at::stack(rows);
  }

 private:
  int64_t longest_;
  Scores scores_;
};

constexpr int64_t kClassesHere = 4;

std::vector<double> drawn(uint64_t seed, int64_t source, const Text& text) {
  std::string words = std::to_string(source);
  for (const int64_t symbol : text) words += "," + std::to_string(symbol);
  Stream numbers(derive_seed(seed, words));
  std::vector<double> scores;
  for (int64_t i = 0; i < kClassesHere; ++i) scores.push_back(3 * numbers.next_unit());
  return scores;
}

std::vector<double> log_softmax(std::vector<double> scores) {
  double sum = 0;
  for (const double score : scores) sum += std::exp(score);
  for (double& score : scores) score -= std::log(sum);
  return scores;
}

// Every step: all continuations of the texts that go on, the likeliest `beams` of them; ended ones are set aside.
WrittenText searched(const Scores& scores, int64_t source, int64_t longest, const SearchOptions& options) {
  std::vector<WrittenText> live(1), aside;
  for (int64_t place = 0; place < longest && !live.empty(); ++place) {
    std::vector<WrittenText> all;
    for (const WrittenText& text : live) {
      const std::vector<double> next = log_softmax(scores(source, text.classes));
      for (int64_t symbol = 0; symbol < kClassesHere; ++symbol) {
        WrittenText longer = text;
        longer.classes.push_back(symbol);
        longer.log_probability += next[static_cast<size_t>(symbol)];
        all.push_back(longer);
      }
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.log_probability > b.log_probability; });
    all.resize(std::min(all.size(), static_cast<size_t>(options.beams)));
    live.clear();
    for (WrittenText& text : all)
      (text.classes.back() == kEndClass || place + 1 == longest ? aside : live).push_back(text);
  }
  WrittenText best{.score = -std::numeric_limits<double>::infinity()};
  for (WrittenText& text : aside) {
    text.score =
        text.log_probability / std::pow((5 + static_cast<double>(text.classes.size())) / 6, options.length_penalty);
    if (text.score > best.score) best = text;
  }
  return best;
}

ModelInput sources(int64_t count) {
  ModelInput input{at::ones({count, 2, 3}, at::kLong), at::ones({count, 2, 3}, at::kBool)};
  for (int64_t row = 0; row < count; ++row) input.tokens[row][0][0] = 3 + row;
  return input;
}

}  // namespace

TEST_CASE("few beams find what a search in plain loops finds, for every source of a batch", "[text-search]") {
  constexpr int64_t kLongest = 6, kSources = 3;
  int64_t other_than_greedy = 0, ended_early = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Scores scores = [&](int64_t source, const Text& text) { return drawn(seed, source, text); };
    Table model(kLongest, scores);
    for (const int64_t beams : {1, 2, 3, 5})
      for (const double penalty : {0.0, 0.6, 2.0}) {
        CAPTURE(seed, beams, penalty);
        const auto found = write_texts(model, sources(kSources), {beams, penalty});
        REQUIRE(found.size() == kSources);
        for (int64_t row = 0; row < kSources; ++row) {
          const WrittenText meant = searched(scores, 3 + row, kLongest, {beams, penalty});
          const WrittenText& text = found[static_cast<size_t>(row)];
          CHECK(text.classes == meant.classes);
          CHECK(text.score == Approx(meant.score).epsilon(1e-12));
          CHECK(text.log_probability == Approx(meant.log_probability).epsilon(1e-12));
          other_than_greedy += text.classes != searched(scores, 3 + row, kLongest, {1, penalty}).classes ? 1 : 0;
          ended_early += static_cast<int64_t>(text.classes.size()) < kLongest ? 1 : 0;
        }
      }
  }
  CHECK(other_than_greedy > 50);  // else there was nothing to search
  CHECK(ended_early > 50);
}

TEST_CASE("of equal texts the first is taken, by beam and then by class", "[text-search]") {
  const Scores even = [](int64_t, const Text&) { return std::vector<double>{-40, 1, 1, 1}; };
  Table model(3, even);
  for (const int64_t beams : {1, 2, 9})
    CHECK(write_texts(model, sources(1), {beams, 0}).front().classes == Text{1, 1, 1});
}

TEST_CASE("a penalty of length buys a longer text what it is worth, the end among its symbols", "[text-search]") {
  // Ending at once has log 0.6; going on once, then ending for certain, log 0.4 over ((5 + 2) / 6)^p.
  const Scores scores = [](int64_t, const Text& text) {
    if (text.empty()) return std::vector<double>{std::log(0.6), std::log(0.4), -90, -90};
    return std::vector<double>{0, -90, -90, -90};
  };
  Table model(4, scores);
  const double even = std::log(std::log(0.4) / std::log(0.6)) / std::log(7.0 / 6);  // where both are worth the same
  CHECK(write_texts(model, sources(1), {2, even - 0.01}).front().classes == Text{0});
  CHECK(write_texts(model, sources(1), {2, even + 0.01}).front().classes == Text{1, 0});
}

}  // namespace xformer::models::text_search_test
