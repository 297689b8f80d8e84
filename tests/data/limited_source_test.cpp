// Part of a dataset: how much of it, and which examples.
#include "data/limited_source.h"

#include <catch2/catch.hpp>

#include "data/datasets.h"
#include "fake_source.h"
#include "scratch.h"

namespace xformer::data {

TEST_CASE("a limit takes a number or a share of a split, evenly out of all") {
  const auto of = [](const std::string& limit) {
    return limited(std::make_unique<fake::Source>(std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), limit);
  };
  const auto lengths = [](const DataSource& source) {
    std::vector<int64_t> result;
    for (int64_t i = 0; i < source.size(Split::kTrain); ++i)
      result.push_back(example_length(source.read(Split::kTrain, i), source.info().shape));
    return result;
  };
  CHECK(lengths(*of("")).size() == 10);
  CHECK(lengths(*of("train=5")) == std::vector<int64_t>{1, 3, 5, 7, 9});
  CHECK(lengths(*of("train=0.25")) == std::vector<int64_t>{1, 4, 7});  // a share is never less than asked for
  CHECK(lengths(*of("train=1%")) == std::vector<int64_t>{1});
  CHECK(lengths(*of("train=99,dev=3")).size() == 10);
  CHECK(of("val=3")->size(Split::kDev) == 0);  // there are none
  CHECK(of("train=5")->info().sizes[0] == 5);
  CHECK(of("train=5")->info().details["limit"] == "train=5");
  for (const char* all : {"train=100%", "train=1.0", "train=10", "train=99,dev=3"})
    CHECK_FALSE(of(all)->info().details.contains("limit"));
  CHECK((is_limited("val=3,train=1%", Split::kDev) && !is_limited("val=3,train=1%", Split::kTest)));
  CHECK(limit_rule().holds("train=5,dev=2"));
  CHECK_THROWS_WITH(limit_rule().holds("train=5,dev=2,train=6"),
                    Catch::Contains("'train=6': train has a limit already"));
}

TEST_CASE("every dataset has the limit, and no adapter hears of it") {
  const scratch::Folder folder;
  DataLocation location;
  location.cache = folder / "cache";
  Json options{
      {"min_length", 5}, {"max_length", 20}, {"train_examples", 20}, {"dev_examples", 8}, {"test_examples", 8}};
  const DatasetDescriptor& listops = find_dataset("listops");
  const auto silent = [](std::string_view, uint64_t, uint64_t) {};
  const auto whole = listops.open(options, location, silent);
  options["limit"] = "train=5,test=50%";
  const auto part = listops.open(options, location, silent);
  CHECK((part->size(Split::kTrain) == 5 && part->size(Split::kDev) == 8 && part->size(Split::kTest) == 4));
  CHECK(part->info().sha256 == whole->info().sha256);  // the same cache
  CHECK(part->read(Split::kTrain, 1).label == whole->read(Split::kTrain, 4).label);
}

}  // namespace xformer::data
