// The generated task of furthest vectors: what a sequence is, from its numbers alone; what is shown, checked and
// refused.
#include <catch2/catch.hpp>
#include <cmath>

#include "core/error.h"
#include "data/batches/batcher.h"
#include "data/check.h"
#include "data/datasets.h"

namespace xformer::furthest_vector_test {

using namespace data;
using Catch::Matchers::Contains;

namespace {

const DatasetDescriptor& task() { return find_dataset("furthest-vector"); }

Json options_of(const Json& given) {
  Json options = Json::object();
  for (const OptionInfo& option : task().options) options[option.name] = option.fallback;
  options.update(Json{{"train_examples", 40}, {"dev_examples", 20}, {"test_examples", 10}});
  options.update(given);
  return options;
}

}  // namespace

TEST_CASE("furthest-vector: unit vectors, and at every place that of the least product with its own", "[furthest]") {
  constexpr int64_t kLength = 30, kWidth = 3;
  const auto source = task().open(options_of({{"length", kLength}, {"width", kWidth}}), {}, {});
  for (int64_t index = 0; index < source->size(Split::kTrain); ++index) {
    HostBatch batch;
    fill_batch(*source, Split::kTrain, {{index}, kLength}, 1, batch);
    const std::vector<float>&values = batch.numbers("values"), &answers = batch.numbers("answer");
    REQUIRE((values.size() == kLength * kWidth && answers.size() == values.size()));
    const auto product = [&](const std::vector<float>& a, int64_t i, const std::vector<float>& b, int64_t j) {
      double sum = 0;
      for (int64_t c = 0; c < kWidth; ++c)
        sum += double{a[static_cast<size_t>(i * kWidth + c)]} * b[static_cast<size_t>(j * kWidth + c)];
      return sum;
    };
    for (int64_t i = 0; i < kLength; ++i) {
      REQUIRE(product(values, i, values, i) == Approx(1).epsilon(1e-6));
      double least = 2;
      bool own = false;  // one of the sequence
      for (int64_t j = 0; j < kLength; ++j) {
        least = std::min(least, product(values, i, values, j));
        own = own ||
              std::equal(&answers[static_cast<size_t>(i * kWidth)], &answers[static_cast<size_t>(i * kWidth)] + kWidth,
                         &values[static_cast<size_t>(j * kWidth)]);
      }
      REQUIRE(own);
      REQUIRE(product(values, i, answers, i) == Approx(least).margin(1e-6));
    }
  }
}

TEST_CASE("furthest-vector: vectors point everywhere equally often", "[furthest]") {
  constexpr double kWidth = 3, kVectors = 1000 * 20;
  const auto source = task().open(options_of({{"length", 20}, {"width", 3}, {"train_examples", 1000}}), {}, {});
  std::array<double, 3> sums{};
  std::array<std::array<double, 3>, 3> products{};
  for (int64_t index = 0; index < 1000; ++index) {
    const Example example = source->read(Split::kTrain, index);
    for (size_t first = 0; first < example.values.size(); first += 3)
      for (size_t a = 0; a < 3; ++a) {
        sums.at(a) += example.values[first + a];
        for (size_t b = 0; b < 3; ++b)
          products.at(a).at(b) += double{example.values[first + a]} * example.values[first + b];
      }
  }
  // Mean 0 and covariance 1/d, within four deviations of at most (1/d)^(1/2) / n^(1/2).
  const double margin = 4 / std::sqrt(kWidth * kVectors);
  for (size_t a = 0; a < 3; ++a) {
    CHECK(sums.at(a) / kVectors == Approx(0).margin(margin));
    for (size_t b = 0; b < 3; ++b)
      CHECK(products.at(a).at(b) / kVectors == Approx(a == b ? 1 / kWidth : 0).margin(margin));
  }
}

TEST_CASE("furthest-vector is checked, shown and has no files", "[furthest]") {
  const CheckReport report = task().check(options_of(Json::object()), {}, {});
  CHECK(report.passed);
  CHECK_THAT(report.text(), Contains("ok    every target follows from its example: 70 examples"));
  const auto source = task().open(options_of(Json::object()), {}, {});
  CHECK(source->info().shape.max_len == 64);
  CHECK(source->info().shape.width == 4);
  const std::string shown = task().show(source->read(Split::kTrain, 0), source->info());
  CHECK_THAT(shown, Contains("place 0: (") && Contains("furthest") && Contains("64 vectors of 4 numbers"));
  DataLocation location;
  location.folder = std::filesystem::temp_directory_path();
  CHECK_THROWS_WITH(task().open(options_of(Json::object()), location, {}), Contains("generated"));
  CHECK_THROWS_WITH(task().open(options_of({{"width", 1}}), {}, {}), Contains("from 2 to 1024"));
}

}  // namespace xformer::furthest_vector_test
