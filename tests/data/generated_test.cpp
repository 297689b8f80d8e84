// The tasks that are generated example by example: adding, temporal-order, aan-synth.
#include <catch2/catch.hpp>
#include <set>

#include "core/error.h"
#include "data/batches/batcher.h"
#include "data/check.h"
#include "data/datasets.h"
#include "data/two_positions.h"
#include "scratch.h"

namespace xformer::generated_test {

using namespace data;
using Catch::Matchers::Contains;

namespace {

Json options_of(const std::string& task, const Json& given) {
  Json options = Json::object();
  for (const OptionInfo& option : find_dataset(task).options) options[option.name] = option.fallback;
  options.update(given);
  return options;
}

std::unique_ptr<DataSource> open(const std::string& task, const Json& given) {
  return find_dataset(task).open(options_of(task, given), {}, {});
}

}  // namespace

TEST_CASE("two positions are every pair equally often, in order") {
  std::map<std::pair<int64_t, int64_t>, int64_t> seen;
  Stream numbers(3);
  for (int i = 0; i < 15000; ++i) {
    const auto [a, b] = two_positions(numbers, 6);
    REQUIRE((a < b && a >= 0 && b < 6));
    ++seen[{a, b}];
  }
  REQUIRE(seen.size() == 15);
  double chi_square = 0;
  for (const auto& [pair, count] : seen) chi_square += std::pow(static_cast<double>(count) - 1000, 2) / 1000;
  CHECK(chi_square < 36.1);  // 14 degrees of freedom, one in a thousand
}

TEST_CASE("adding: two marks, the target of their numbers, mean 1/2 and variance 1/24") {
  const auto source = open("adding", {{"length", 50}, {"train_examples", 20000}});
  CHECK(source->size(Split::kTrain) == 20000);
  double sum = 0, squares = 0, near_middle = 0;
  for (int64_t i = 0; i < source->size(Split::kTrain); ++i) {
    const Example example = source->read(Split::kTrain, i);
    REQUIRE(example.values.size() == 100);
    float marked = 0;
    int64_t marks = 0;
    for (size_t j = 0; j < 100; j += 2) {
      REQUIRE((example.values[j] > -1 && example.values[j] <= 1));
      marks += example.values[j + 1] == 1 ? 1 : 0;
      marked += example.values[j] * example.values[j + 1];
    }
    REQUIRE(marks == 2);
    REQUIRE(example.target == Approx(0.5 + marked / 4).margin(1e-6));
    sum += example.target;
    squares += example.target * example.target;
    near_middle += std::abs(example.target - 0.5) < 0.04 ? 1 : 0;
  }
  const double n = 20000, mean = sum / n;
  CHECK(mean == Approx(0.5).margin(0.005));
  CHECK(squares / n - mean * mean == Approx(1.0 / 24).epsilon(0.05));
  CHECK(1 - near_middle / n == Approx(0.8464).margin(0.01));  // of who always answers 0.5
}

TEST_CASE("temporal-order: two symbols that matter, in four orders equally often") {
  const auto source = open("temporal-order", {{"length", 40}, {"train_examples", 8000}});
  std::array<int64_t, 4> labels{};
  for (int64_t i = 0; i < 8000; ++i) {
    const Example example = source->read(Split::kTrain, i);
    std::string order;
    for (const uint8_t id : example.ids[0].as<uint8_t>()) {
      REQUIRE(id < 6);
      if (id >= 4) order += id == 4 ? 'X' : 'Y';
    }
    const std::map<std::string, int64_t> meant{{"XX", 0}, {"XY", 1}, {"YX", 2}, {"YY", 3}};
    REQUIRE(meant.at(order) == example.label);
    ++labels[static_cast<size_t>(example.label)];
  }
  for (const int64_t count : labels) CHECK(count == Approx(2000).margin(150));
}

TEST_CASE("an example depends on its index alone, and splits share none") {
  for (const std::string task : {"adding", "temporal-order", "aan-synth", "furthest-vector"}) {
    CAPTURE(task);
    const Json few{{"length", 64}, {"train_examples", 40}, {"dev_examples", 40}, {"test_examples", 10}};
    Json more = few;
    more["train_examples"] = 4000;
    const auto source = open(task, few), other = open(task, more);
    const auto content = [](const Example& example) {
      std::string bytes;
      for (const auto& ids : example.ids) bytes.append(ids.bytes());
      for (const float value : example.values) bytes += std::to_string(value);
      return bytes + std::to_string(example.label) + std::to_string(example.target);
    };
    std::set<std::string> seen;
    for (int64_t i = 39; i >= 0; --i) {
      const std::string one = content(source->read(Split::kTrain, i));
      CHECK(one == content(other->read(Split::kTrain, i)));
      seen.insert(one);
      seen.insert(content(source->read(Split::kDev, i)));
    }
    CHECK(seen.size() == 80);
    CHECK(source->info().sha256 != other->info().sha256);
    Json reseeded = few;
    reseeded["generator_seed"] = 1;
    CHECK(content(open(task, reseeded)->read(Split::kTrain, 0)) != content(source->read(Split::kTrain, 0)));
    HostBatch batch;
    fill_batch(*source, Split::kTrain, {{3, 5}, source->info().shape.max_len}, 2, batch);
    CHECK(batch.key_valid == std::vector<uint8_t>(batch.key_valid.size(), 1));  // also where an id is 0
    const CheckReport report = find_dataset(task).check(options_of(task, few), {}, {});
    CHECK(report.passed);
    CHECK(report.splits["dev"]["examples"] == 40);
    CHECK_FALSE(find_dataset(task).show(source->read(Split::kTrain, 0), source->info()).empty());
    const scratch::Folder folder;
    DataLocation location;
    location.folder = folder.path();
    CHECK_THROWS_WITH(find_dataset(task).open(options_of(task, few), location, {}), Contains("generated"));
  }
}

TEST_CASE("aan-synth: documents of a pair share rare words or do not") {
  const auto source = open("aan-synth", {{"length", 600}, {"train_examples", 400}});
  const auto shared = [](const Example& example) {
    std::array<std::multiset<std::string>, 2> words;
    for (size_t i = 0; i < 2; ++i) {
      std::string word;
      for (const uint8_t byte : example.ids[i].as<uint8_t>()) {
        if (byte != ' ') word += static_cast<char>(byte);
        else words[i].insert(std::exchange(word, ""));
      }
    }
    int64_t often = 0;  // words that come back in both: common ones are too many to
    for (const std::string& word : std::set<std::string>(words[0].begin(), words[0].end()))
      often += words[0].count(word) >= 2 && words[1].count(word) >= 2 ? 1 : 0;
    return often;
  };
  double with = 0, without = 0;
  int64_t ones = 0;
  for (int64_t i = 0; i < 400; ++i) {
    const Example example = source->read(Split::kTrain, i);
    REQUIRE((example.ids[0].size() == 600 && example.ids[1].size() == 600));
    (example.label == 1 ? with : without) += static_cast<double>(shared(example));
    ones += example.label;
  }
  CHECK(ones == Approx(200).margin(40));
  CHECK(with / static_cast<double>(ones) > 2 + without / static_cast<double>(400 - ones));
}

TEST_CASE("aan-synth has as many subjects as it is told, and pairs of one or of two") {
  const auto source = open("aan-synth", {{"length", 1000}, {"subjects", 3}, {"shared_words", 4}});
  std::map<std::string, int64_t> counts;
  std::vector<std::array<std::set<std::string>, 2>> pairs;
  std::vector<int64_t> labels;
  for (int64_t row = 0; row < 200; ++row) {
    const Example example = source->read(Split::kTrain, row);
    pairs.emplace_back();
    labels.push_back(example.label);
    for (size_t i = 0; i < 2; ++i) {
      std::string word;
      for (const uint8_t byte : example.ids[i].as<uint8_t>()) {
        if (byte != ' ') {
          word += static_cast<char>(byte);
        } else {
          ++counts[word];
          pairs.back()[i].insert(word);
          word.clear();
        }
      }
    }
  }
  // Each rare word is one in sixteen of those of its subject's documents, a common one in about 670 of all.
  std::vector<std::pair<int64_t, std::string>> order;
  for (const auto& [word, count] : counts) order.emplace_back(count, word);
  std::sort(order.rbegin(), order.rend());
  CHECK(order[11].first > 3 * order[12].first);
  std::set<std::string> rare;
  for (size_t i = 0; i < 12; ++i) rare.insert(order[i].second);
  std::set<int64_t> seen;
  for (size_t row = 0; row < pairs.size(); ++row) {
    bool shared = false;
    for (const std::string& word : rare)
      shared = shared || (pairs[row][0].contains(word) && pairs[row][1].contains(word));
    CHECK(shared == (labels[row] == 1));
    seen.insert(labels[row]);
  }
  CHECK(seen.size() == 2);
  CHECK_THROWS_WITH(open("aan-synth", {{"subjects", 1}}), Contains("data.subjects: expected 2 at least"));
}

}  // namespace xformer::generated_test
