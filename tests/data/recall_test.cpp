// The generated tasks of recall: what a sequence is, from its ids alone; the law of mqar's slots; splits and options.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "core/error.h"
#include "data/batches/batcher.h"
#include "data/check.h"
#include "data/datasets.h"
#include "data/recall/recall_sequences.h"
#include "scratch.h"

namespace xformer::recall_test {

using namespace data;
using Catch::Matchers::Contains;

namespace {

const std::vector<std::string> kTasks{"mqar", "associative-recall", "induction", "selective-copy"};

Json options_of(const std::string& task, const Json& given) {
  Json options = Json::object();
  for (const OptionInfo& option : find_dataset(task).options) options[option.name] = option.fallback;
  options.update(given);
  return options;
}

std::unique_ptr<DataSource> open(const std::string& task, const Json& given) {
  return find_dataset(task).open(options_of(task, given), {}, {});
}

// What a batch of one example holds, which is how a model gets it.
struct Sequence {
  std::vector<int64_t> ids, labels;
};
Sequence sequence(const DataSource& source, Split split, int64_t index) {
  HostBatch batch;
  fill_batch(source, split, {{index}, source.info().shape.max_len}, 1, batch);
  for (const uint8_t valid : batch.key_valid) REQUIRE(valid == 1);  // id 0 is no padding
  return {batch.whole("tokens"), batch.whole("label")};
}

// One in a thousand of chi-square with that many degrees of freedom lies above (Wilson and Hilferty).
double chi_square_limit(double freedom) {
  const double part = 2 / (9 * freedom);
  return freedom * std::pow(1 - part + 3.09 * std::sqrt(part), 3);
}

}  // namespace

TEST_CASE("different numbers are every ordered choice equally often", "[recall]") {
  std::map<std::vector<int64_t>, double> seen;
  Stream numbers(5);
  for (int i = 0; i < 12'000; ++i) ++seen[draw_distinct(numbers, 4, 2)];
  REQUIRE(seen.size() == 12);
  double chi_square = 0;
  for (const auto& [one, count] : seen) chi_square += std::pow(count - 1000, 2) / 1000;
  CHECK(chi_square < chi_square_limit(11));
  CHECK(draw_distinct(numbers, 6, 6).size() == 6);
}

TEST_CASE("mqar: keys and values in front, every key once more, its value asked for there", "[recall]") {
  for (const bool fill : {true, false}) {
    const auto source = open(
        "mqar", {{"length", 32}, {"pairs", 5}, {"vocabulary", 64}, {"random_fill", fill}, {"train_examples", 500}});
    CHECK((source->info().shape.vocabulary == 64 && source->info().shape.target.classes() == 64));
    int64_t elsewhere = 0;
    for (int64_t row = 0; row < 500; ++row) {
      const auto [ids, labels] = sequence(*source, Split::kTrain, row);
      REQUIRE(ids.size() == 32);
      std::map<int64_t, int64_t> value_of;
      std::set<int64_t> values, asked;
      for (size_t i = 0; i < 10; i += 2) {
        REQUIRE((ids[i] >= 1 && ids[i] < 32 && ids[i + 1] >= 32 && ids[i + 1] < 64));
        value_of[ids[i]] = ids[i + 1];
        values.insert(ids[i + 1]);
      }
      REQUIRE((value_of.size() == 5 && values.size() == 5));
      for (size_t i = 0; i < 32; ++i) {
        if (labels[i] < 0) {
          REQUIRE(labels[i] == kNoLabel);
          if (i >= 10) elsewhere += ids[i] != 0 ? 1 : 0;
          continue;
        }
        REQUIRE((i >= 10 && i % 2 == 0));
        REQUIRE(labels[i] == value_of.at(ids[i]));  // who looks it up is right
        REQUIRE(asked.insert(ids[i]).second);
      }
      REQUIRE(asked.size() == 5);
    }
    CHECK((elsewhere > 0) == fill);
  }
}

TEST_CASE("mqar: the first key's slot has probability in proportion to (g + 1)^(a - 1)", "[recall]") {
  constexpr int64_t kRows = 20'000, kSlots = 12;  // of 32 tokens with 4 pairs
  const auto source = open("mqar", {{"length", 32}, {"pairs", 4}, {"vocabulary", 64}, {"train_examples", kRows}});
  std::array<double, kSlots> first{}, weights{};
  std::array<double, 2> early{};  // how often the first and the last key come before the middle
  double sum = 0;
  for (size_t slot = 0; slot < kSlots; ++slot) sum += weights[slot] = std::pow(static_cast<double>(slot + 1), 0.01 - 1);
  for (int64_t row = 0; row < kRows; ++row) {
    const auto [ids, labels] = sequence(*source, Split::kTrain, row);
    for (size_t i = 8; i < 32; ++i) {
      if (labels[i] < 0) continue;
      if (ids[i] == ids[0]) ++first[(i - 8) / 2];
      if (i < 20) early[0] += ids[i] == ids[0] ? 1 : 0, early[1] += ids[i] == ids[6] ? 1 : 0;
    }
  }
  double chi_square = 0;
  for (size_t slot = 0; slot < kSlots; ++slot) {
    const double meant = kRows * weights[slot] / sum;
    chi_square += std::pow(first[slot] - meant, 2) / meant;
  }
  CHECK(chi_square < chi_square_limit(kSlots - 1));
  CHECK(early[0] > 1.1 * early[1]);  // those before have taken the near slots
}

TEST_CASE("associative-recall: the value that the key had, by a map of the sequence", "[recall]") {
  const auto source = open("associative-recall", {{"train_examples", 300}, {"dev_examples", 300}});
  std::set<std::pair<int64_t, int64_t>> pairs;
  std::set<int64_t> answers;
  for (const Split split : {Split::kTrain, Split::kDev})
    for (int64_t row = 0; row < 300; ++row) {
      const auto [ids, labels] = sequence(*source, split, row);
      REQUIRE((ids.size() == 42 && ids[40] == 19));
      std::map<int64_t, int64_t> value_of;
      for (size_t i = 0; i < 40; i += 2) {
        REQUIRE((ids[i] < 9 && ids[i + 1] >= 9 && ids[i + 1] < 18));
        REQUIRE(value_of.try_emplace(ids[i], ids[i + 1]).first->second == ids[i + 1]);
        pairs.insert({ids[i], ids[i + 1]});
      }
      REQUIRE(labels[41] == value_of.at(ids[41]));
      answers.insert(labels[41]);
      for (size_t i = 0; i < 41; ++i) REQUIRE(labels[i] == (split == Split::kTrain ? ids[i + 1] : kNoLabel));
    }
  CHECK(pairs.size() == 81);
  CHECK(answers.size() == 9);
  const auto last = open("associative-recall", {{"train_labels", "last"}});
  CHECK(sequence(*last, Split::kTrain, 3).labels[7] == kNoLabel);
  CHECK(sequence(*last, Split::kTrain, 3).ids ==
        sequence(*open("associative-recall", Json::object()), Split::kTrain, 3).ids);
}

TEST_CASE("induction: the symbol behind the first trigger, at any place of the first n - 3", "[recall]") {
  const auto source = open("induction", {{"length", 12}, {"vocabulary", 6}, {"test_examples", 4500}});
  std::array<double, 9> places{};
  for (int64_t row = 0; row < 4500; ++row) {
    const auto [ids, labels] = sequence(*source, Split::kTest, row);
    REQUIRE((ids.size() == 12 && ids[11] == 5 && std::count(ids.begin(), ids.end(), 5) == 2));
    const auto first = static_cast<size_t>(std::find(ids.begin(), ids.end(), 5) - ids.begin());
    REQUIRE(first < 9);
    ++places[first];
    REQUIRE(labels[11] == ids[first + 1]);
    REQUIRE(std::count(labels.begin(), labels.end(), kNoLabel) == 11);
  }
  double chi_square = 0;
  for (const double count : places) chi_square += std::pow(count - 500, 2) / 500;
  CHECK(chi_square < chi_square_limit(8));
}

TEST_CASE("selective-copy: tokens anywhere, or in front, asked for in their order at the markers", "[recall]") {
  for (const bool variable : {true, false}) {
    const auto source =
        open("selective-copy", {{"length", 50}, {"tokens", 4}, {"vocabulary", 10}, {"variable", variable}});
    std::map<int64_t, int64_t> symbols, places;
    for (int64_t row = 0; row < 800; ++row) {
      const auto [ids, labels] = sequence(*source, Split::kTrain, row);
      REQUIRE(ids.size() == 54);
      std::vector<int64_t> tokens;
      for (size_t i = 0; i < 50; ++i) {
        REQUIRE((ids[i] < 9 && labels[i] == kNoLabel));
        if (ids[i] == 0) continue;
        tokens.push_back(ids[i]);
        ++symbols[ids[i]];
        ++places[static_cast<int64_t>(i)];
      }
      REQUIRE(tokens == std::vector<int64_t>(labels.begin() + 50, labels.end()));
      REQUIRE(std::count(ids.begin() + 50, ids.end(), 9) == 4);
    }
    CHECK(places.size() == (variable ? 50 : 4));
    REQUIRE(symbols.size() == 8);
    double chi_square = 0;
    for (const auto& [symbol, count] : symbols) chi_square += std::pow(static_cast<double>(count) - 400, 2) / 400;
    CHECK(chi_square < chi_square_limit(7));
  }
}

TEST_CASE("a sequence of recall depends on its index alone, its check passes, and it has no files", "[recall]") {
  for (const std::string& task : kTasks) {
    CAPTURE(task);
    const Json few{{"length", 32}, {"train_examples", 40}, {"dev_examples", 40}, {"test_examples", 10}};
    Json more = few, reseeded = few;
    more["train_examples"] = 4000;
    reseeded["generator_seed"] = 1;
    const auto source = open(task, few), other = open(task, more);
    std::set<std::vector<int64_t>> seen;
    for (int64_t i = 39; i >= 0; --i) {
      const std::vector<int64_t> one = sequence(*source, Split::kTrain, i).ids;
      CHECK(one == sequence(*other, Split::kTrain, i).ids);
      seen.insert(one);
      seen.insert(sequence(*source, Split::kDev, i).ids);
    }
    CHECK(seen.size() == 80);
    CHECK(source->info().sha256 != other->info().sha256);
    CHECK(sequence(*open(task, reseeded), Split::kTrain, 0).ids != sequence(*source, Split::kTrain, 0).ids);
    const CheckReport report = find_dataset(task).check(options_of(task, few), {}, {});
    CHECK(report.passed);
    CHECK((report.splits["dev"]["examples"] == 40 && !report.splits["dev"].contains("labels")));
    CHECK_FALSE(find_dataset(task).show(source->read(Split::kTrain, 0), source->info()).empty());
    const scratch::Folder folder;
    DataLocation location;
    location.folder = folder.path();
    CHECK_THROWS_WITH(find_dataset(task).open(options_of(task, few), location, {}), Contains("generated"));
  }
}

TEST_CASE("ids are as narrow as the vocabulary lets them be, and labels are none behind the end", "[recall]") {
  const auto wide = open("mqar", {{"vocabulary", 8192}}), narrow = open("mqar", {{"vocabulary", 256}});
  CHECK(wide->read(Split::kTrain, 0).ids[0].as<uint16_t>().size() == 64);
  CHECK(narrow->read(Split::kTrain, 0).ids[0].as<uint8_t>().size() == 64);
  HostBatch batch;
  fill_batch(*narrow, Split::kTrain, {{1}, 70}, 2, batch);
  for (size_t i = 64; i < 140; ++i) REQUIRE((batch.key_valid[i] == 0 && batch.whole("label")[i] == kNoLabel));
}

TEST_CASE("sizes that no sequence of recall can have are refused, with both numbers", "[recall]") {
  const auto refused = [](const std::string& task, const Json& given) {
    try {
      (void)open(task, given);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  CHECK_THAT(refused("mqar", {{"length", 64}, {"pairs", 17}}), Contains("data.pairs") && Contains("17 of 64"));
  CHECK(refused("mqar", {{"length", 64}, {"pairs", 16}}) == "accepted");
  CHECK_THAT(refused("mqar", {{"length", 63}}), Contains("even"));
  CHECK_THAT(refused("mqar", {{"length", 64}, {"pairs", 16}, {"vocabulary", 32}}), Contains("data.vocabulary"));
  CHECK_THAT(refused("associative-recall", {{"length", 41}}), Contains("even"));
  CHECK_THAT(refused("selective-copy", {{"length", 8}, {"tokens", 9}}), Contains("data.tokens"));
}

}  // namespace xformer::recall_test
