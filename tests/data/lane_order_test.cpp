// Lanes of one stream: which windows a batch has in training and in evaluations, and what breaks them up.
#include "data/batches/lane_order.h"

#include <catch2/catch.hpp>
#include <set>

#include "core/error.h"
#include "data/adapter_place.h"
#include "data/batches/batcher.h"
#include "data/limited_source.h"
#include "fake_source.h"

namespace xformer::data::lane_order_test {

using adapter_place::Place;
using Catch::Matchers::Contains;

namespace {

fake::Source stream(int64_t windows) { return fake::Source(std::vector<int64_t>(static_cast<size_t>(windows), 4)); }

LaneOrder lanes(const DataSource& source, LaneUse use, int64_t batch) {
  return {source, Split::kTrain, use, {.batch = batch, .padded_len = 4}};
}

// Of a Place's file "noise".
Json noise(const std::string& scoring, const std::string& windows) {
  return {{"length", 16}, {"scoring", scoring}, {"windows", windows}, {"dev_share", 0.25}, {"test_share", 0.25}};
}

std::string letters(size_t size) {
  std::string text(size, '\0');
  Stream numbers(9);
  for (char& letter : text) letter = static_cast<char>(numbers.next_below(256));
  return text;
}

}  // namespace

TEST_CASE("every row of a training batch goes on where it was, from batch to batch and from epoch to epoch",
          "[lanes]") {
  for (const auto& [windows, batch] : {std::pair{12, 3}, {13, 3}, {14, 3}, {7, 7}, {9, 1}, {11, 10}}) {
    CAPTURE(windows, batch);
    const fake::Source source = stream(windows);
    const LaneOrder order = lanes(source, LaneUse::kTraining, batch);
    CHECK(order.batches_per_epoch() == windows / batch);
    std::vector<int64_t> last;
    for (int64_t epoch = 0; epoch < 9; ++epoch) {
      std::set<int64_t> seen;
      for (int64_t i = 0; i < order.batches_per_epoch(); ++i) {
        const BatchRows rows = order.batch(epoch, i);
        REQUIRE((static_cast<int64_t>(rows.rows.size()) == batch && rows.width == batch && rows.padded_len == 4));
        CHECK((rows.row_numbers.empty() && rows.shifts.empty() && rows.begins.empty()));
        for (size_t row = 0; row < last.size(); ++row) CHECK(rows.rows[row] == (last[row] + 1) % windows);
        last = rows.rows;
        seen.insert(last.begin(), last.end());
      }
      // None twice, and all but what does not make a batch.
      CHECK(static_cast<int64_t>(seen.size()) == windows / batch * batch);
    }
    CHECK(order.batch(2, 0).rows == lanes(source, LaneUse::kTraining, batch).batch(2, 0).rows);
  }
}

TEST_CASE("an evaluation in lanes has every window once, each behind the one before it", "[lanes]") {
  for (int64_t windows = 1; windows <= 20; ++windows)
    for (int64_t batch = 1; batch <= 9; ++batch) {
      CAPTURE(windows, batch);
      const fake::Source source = stream(windows);
      const LaneOrder order = lanes(source, LaneUse::kEvaluation, batch);
      std::multiset<int64_t> seen;
      std::vector<int64_t> last;
      for (int64_t i = 0; i < order.batches_per_epoch(); ++i) {
        const BatchRows rows = order.batch(0, i);
        REQUIRE((!rows.rows.empty() && rows.width == std::min(batch, windows)));
        REQUIRE((i == 0 || rows.rows.size() <= last.size()));
        for (size_t row = 0; row < rows.rows.size() && i > 0; ++row) REQUIRE(rows.rows[row] == last[row] + 1);
        last = rows.rows;
        seen.insert(last.begin(), last.end());
      }
      REQUIRE(static_cast<int64_t>(seen.size()) == windows);
      REQUIRE(std::set<int64_t>(seen.begin(), seen.end()).size() == seen.size());
    }
}

TEST_CASE("what breaks up lanes is refused, and more rows than windows", "[lanes]") {
  const fake::Source source = stream(5);
  const auto made = [&](const std::function<void(OrderOptions&)>& change) {
    OrderOptions options{.batch = 2, .padded_len = 4};
    change(options);
    (void)LaneOrder(source, Split::kTrain, LaneUse::kTraining, options);
  };
  CHECK_NOTHROW(made([](OrderOptions&) {}));
  CHECK_THROWS_WITH(made([](OrderOptions& it) { it.batch = 6; }), Contains("training.batch") && Contains("5"));
  CHECK_THROWS_WITH(made([](OrderOptions& it) { it.buckets = 2; }), Contains("training.buckets"));
  CHECK_THROWS_WITH(made([](OrderOptions& it) { it.batching.repeats = 2; }), Contains("data.repeats"));
  CHECK_THROWS_WITH(made([](OrderOptions& it) { it.batching.cyclic_shift = 2; }), Contains("data.cyclic_shift"));
}

TEST_CASE("a file's bytes are read in lanes where its options say so, in training and under the scoring memory",
          "[lanes]") {
  const Place place;
  const std::string text = letters(700);
  scratch::put(place.folder / "noise", text);
  const auto source = place.open("bytes/noise", noise("memory", "lanes"));
  const DataShape& shape = source->info().shape;
  CHECK((read_in_lanes(shape, Split::kTrain) && read_in_lanes(shape, Split::kDev)));
  CHECK(source->info().details["scoring"] == "memory");

  // A row's labels are its part of the stream, byte by byte, and each place's id is the byte before.
  constexpr int64_t kBatch = 4;
  const OrderOptions options{.batch = kBatch, .padded_len = 16};
  const int64_t lane = source->size(Split::kTrain) / kBatch;
  std::vector<std::string> read(kBatch), before(kBatch);
  Prefetcher batches(*source, Split::kTrain, make_training_order(*source, options), 0, lane);
  for (int64_t i = 0; i < lane; ++i) {
    const HostBatch& batch = batches.next();
    for (size_t at = 0; at < kBatch * 16; ++at) {
      read[at / 16] += static_cast<char>(batch.whole("label")[at]);
      before[at / 16] += static_cast<char>(batch.whole("tokens")[at] - 1);
    }
  }
  for (size_t row = 0; row < kBatch; ++row) {
    const size_t begin = row * static_cast<size_t>(lane) * 16;
    CHECK(read[row] == text.substr(begin, read[row].size()));
    CHECK(before[row].substr(1) == read[row].substr(0, read[row].size() - 1));
    if (row > 0) CHECK(before[row][0] == text[begin - 1]);
  }
  for (const auto& [scoring, windows] : {std::pair{"window", "lanes"}, {"memory", "random"}, {"window", "random"}}) {
    const DataShape other = place.open("bytes/noise", noise(scoring, windows))->info().shape;
    CHECK(read_in_lanes(other, Split::kTrain) == (windows == std::string("lanes")));
    CHECK(read_in_lanes(other, Split::kTest) == (scoring == std::string("memory")));
  }
}

TEST_CASE("a limit of a split that is read in lanes takes its beginning, of others windows of all of it", "[lanes]") {
  const Place place;
  scratch::put(place.folder / "noise", letters(700));
  const auto firsts = [&](const std::string& scoring, Split split) {
    const auto source = limited(place.open("bytes/noise", noise(scoring, "lanes")), "train=4,dev=3");
    std::vector<int64_t> result;
    for (int64_t i = 0; i < source->size(split); ++i)
      result.push_back(source->read(split, i).further[0].as<int32_t>()[0]);
    return result;
  };
  const auto of_all = [&](Split split, std::vector<int64_t> windows) {
    const auto source = place.open("bytes/noise", noise("window", "consecutive"));
    for (int64_t& window : windows) window = source->read(split, window).further[0].as<int32_t>()[0];
    return windows;
  };
  CHECK(firsts("memory", Split::kTrain) == of_all(Split::kTrain, {0, 1, 2, 3}));
  CHECK(firsts("memory", Split::kDev) == of_all(Split::kDev, {0, 1, 2}));
  CHECK(firsts("window", Split::kDev) == of_all(Split::kDev, {0, 3, 7}));
}

}  // namespace xformer::data::lane_order_test
