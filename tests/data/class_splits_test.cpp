// Splits that are drawn class by class, or made whole where the files make only some.
#include "data/class_splits.h"

#include <catch2/catch.hpp>
#include <map>

#include "core/error.h"

namespace xformer::class_splits_test {

using namespace data;
using Made = std::vector<std::optional<Split>>;

namespace {

// Counts by class and split.
std::map<std::pair<int64_t, Split>, int64_t> counted(const std::vector<int64_t>& labels,
                                                     const std::vector<Split>& splits) {
  std::map<std::pair<int64_t, Split>, int64_t> result;
  for (size_t i = 0; i < labels.size(); ++i) ++result[{labels[i], splits[i]}];
  return result;
}

}  // namespace

TEST_CASE("every class is cut at the same shares, drawn by the seed", "[class-splits]") {
  std::vector<int64_t> labels(10, 0);
  labels.insert(labels.end(), 2995, 1);
  const Made none(labels.size());
  const std::vector<Split> drawn = class_splits(labels, none, 0.2, 0.1, 0);
  auto counts = counted(labels, drawn);
  CHECK((counts[{0, Split::kTrain}] == 7 && counts[{0, Split::kDev}] == 2 && counts[{0, Split::kTest}] == 1));
  // floor(.7 * 2995), floor(.9 * 2995) less that, the rest.
  CHECK((counts[{1, Split::kTrain}] == 2096 && counts[{1, Split::kDev}] == 599 && counts[{1, Split::kTest}] == 300));
  CHECK(class_splits(labels, none, 0.2, 0.1, 0) == drawn);
  CHECK(class_splits(labels, none, 0.2, 0.1, 1) != drawn);
  // What one class holds does not move the other.
  const std::vector<int64_t> alone(10, 0);
  const std::vector<Split> few = class_splits(alone, Made(10), 0.2, 0.1, 0);
  CHECK(std::equal(few.begin(), few.end(), drawn.begin()));
}

TEST_CASE("splits of the files stay, and a dev that they lack is drawn from train", "[class-splits]") {
  std::vector<int64_t> labels;
  Made made;
  for (int64_t i = 0; i < 40; ++i) {
    labels.push_back(i % 2);
    made.push_back(i < 20 ? Split::kTrain : Split::kTest);
  }
  const std::vector<Split> held = class_splits(labels, made, 0.2, 0.5, 3);
  auto counts = counted(labels, held);
  for (const int64_t label : {0, 1})
    CHECK((counts[{label, Split::kTrain}] == 8 && counts[{label, Split::kDev}] == 2 &&
           counts[{label, Split::kTest}] == 10));
  for (size_t i = 20; i < 40; ++i) CHECK(held[i] == Split::kTest);
  made[0] = Split::kDev;
  const std::vector<Split> whole = class_splits(labels, made, 0.2, 0.5, 3);
  for (size_t i = 0; i < 40; ++i) CHECK(whole[i] == *made[i]);
}

TEST_CASE("shares that leave nothing to train on, and names that come twice, are refused", "[class-splits]") {
  CHECK_NOTHROW(check_shares(0.5, 0.4));
  CHECK_THROWS_WITH(check_shares(0.5, 0.5), Catch::Matchers::Contains("leave nothing to train on"));
  CHECK(listed_names("data.classes", " b, a ") == std::vector<std::string>{"b", "a"});
  CHECK(listed_names("data.classes", "").empty());
  CHECK_THROWS_AS(listed_names("data.classes", "a,,b"), UserError);
  CHECK_THROWS_WITH(listed_names("data.classes", "a,b,a"), Catch::Matchers::Contains("'a' comes twice"));
  CHECK((split_by_name("val") == Split::kDev && split_by_name("test") == Split::kTest && !split_by_name("tests")));
}

}  // namespace xformer::class_splits_test
