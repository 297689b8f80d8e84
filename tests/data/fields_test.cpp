// Fields that no data set of today has, through cache and batches: ids of two bytes, several fields at each place,
// facts of an example, windows of one long stream and the orders that serve them.
#include <catch2/catch.hpp>
#include <set>

#include "core/error.h"
#include "data/batches/batcher.h"
#include "data/cache/cache.h"
#include "scratch.h"

namespace xformer::fields_test {

using namespace data;
using scratch::Folder;

namespace {

// Events: what happened (of 700 kinds), for how much, whether it was seen, and two measures; of a customer an age and a
// rate.
DataShape events(int64_t sequences = 1) {
  DataShape shape{.max_len = 4, .vocabulary = 700, .sequences = sequences, .target = class_target(3)};
  shape.further = {{"amount", Element::kI32, Axes::kToken},
                   {"seen", Element::kBool, Axes::kToken},
                   {"measures", Element::kF32, Axes::kTokenByK, 2},
                   {"age", Element::kU8, Axes::kExample, 1, 120},
                   {"rate", Element::kF32}};
  return shape;
}

// Example `number`, whose sequence s has as many places as `lengths` says.
struct Made {
  std::array<std::vector<uint16_t>, 2> ids;
  std::array<std::vector<int32_t>, 2> amounts;
  std::array<std::vector<uint8_t>, 2> seen;
  std::array<std::vector<float>, 2> measures;

  Example make(int64_t number, const std::vector<int64_t>& lengths) {
    Example example;
    for (size_t s = 0; s < lengths.size(); ++s) {
      ids[s].clear(), amounts[s].clear(), seen[s].clear(), measures[s].clear();
      for (int64_t i = 0; i < lengths[s]; ++i) {
        const auto value = static_cast<int32_t>(100 * number + 10 * static_cast<int64_t>(s) + i);
        ids[s].push_back(static_cast<uint16_t>(300 + value));
        amounts[s].push_back(-70'000 * value);
        seen[s].push_back(i % 2 == 0);
        for (const float half : {0.0F, 0.5F}) measures[s].push_back(static_cast<float>(value) + half);
      }
      example.ids[s] = ids[s];
    }
    for (size_t s = 0; s < lengths.size(); ++s) example.further.emplace_back(amounts[s]);
    for (size_t s = 0; s < lengths.size(); ++s) example.further.emplace_back(seen[s]);
    for (size_t s = 0; s < lengths.size(); ++s) example.further.emplace_back(measures[s]);
    example.facts = {static_cast<double>(20 + number), 0.25 * static_cast<double>(number)};
    example.label = number % 3;
    return example;
  }
};

std::unique_ptr<DataSource> open_events(const Path& cache, int64_t sequences,
                                        const std::vector<std::vector<int64_t>>& lengths) {
  const auto build = [&](const AddExample& add, DataInfo& info) {
    info.shape = events(sequences);
    Made made;
    for (size_t i = 0; i < lengths.size(); ++i) add(Split::kTrain, made.make(static_cast<int64_t>(i), lengths[i]));
  };
  (void)open_cached({cache, "events", Json{{"sequences", sequences}}}, build, {});
  return open_cached({cache, "events", Json{{"sequences", sequences}}}, {}, {});
}

}  // namespace

TEST_CASE("fields of 1, 2 and 4 bytes come back from a cache and lie in a batch as declared") {
  const Folder folder;
  // Odd lengths: each field begins where its elements may.
  const auto source = open_events(folder.path(), 1, {{3}, {0}, {1}, {4}});
  CHECK(source->info().shape == events());
  Made made;
  const std::vector<Part> parts = parts_of(events());
  REQUIRE(parts.size() == 7);  // label, age, rate; tokens, amount, seen, measures
  for (const auto& [number, length] : {std::pair{0, 3}, std::pair{1, 0}, std::pair{2, 1}, std::pair{3, 4}}) {
    const Example meant = made.make(number, {length}), found = source->read(Split::kTrain, number);
    for (const Part& part : parts) {
      INFO(number << " " << part.field.name);
      if (part.field.of_tokens()) CHECK(part.elements(found).bytes() == part.elements(meant).bytes());
      else CHECK(part.fact(found) == part.fact(meant));
    }
  }
  HostBatch batch;
  fill_batch(*source, Split::kTrain, {{3, 0}, 3, {1, 0}}, 3, batch);
  CHECK(batch.whole("tokens") == std::vector<int64_t>{602, 600, 601, 300, 301, 302, 0, 0, 0});  // rolled by one
  CHECK(batch.whole("amount")[0] == -70'000 * 302);
  CHECK(batch.whole("seen") == std::vector<int64_t>{1, 1, 0, 1, 0, 1, 0, 0, 0});
  CHECK(std::vector<float>(batch.numbers("measures").begin(), batch.numbers("measures").begin() + 4) ==
        std::vector<float>{302, 302.5, 300, 300.5});
  CHECK(batch.whole("age") == std::vector<int64_t>{23, 20, 0});
  CHECK(batch.numbers("rate") == std::vector<float>{0.75, 0, 0});
  CHECK(batch.whole("label") == std::vector<int64_t>{0, 0, 0});
  CHECK_THROWS_AS(batch.whole("ages"), InternalError);
}

TEST_CASE("each field of both sequences of a pair finds its own") {
  const Folder folder;
  const auto source = open_events(folder.path(), 2, {{3, 1}, {2, 4}});
  HostBatch batch;
  fill_batch(*source, Split::kTrain, {{1}, 4}, 1, batch);
  CHECK(batch.whole("tokens") == std::vector<int64_t>{400, 401, 0, 0, 410, 411, 412, 413});
  CHECK(batch.whole("amount")[4] == -70'000 * 110);
  CHECK(batch.key_valid == std::vector<uint8_t>{1, 1, 0, 0, 1, 1, 1, 1});
  CHECK(batch.numbers("measures")[8] == 110);
}

TEST_CASE("fields that differ in places, or lie outside of their range, are a builder's fault") {
  const Folder folder;
  const auto built = [&](const std::function<void(Example&)>& change) {
    return open_cached({folder.path(), "faulty", Json{{"one", 1}}},
                       [&](const AddExample& add, DataInfo& info) {
                         info.shape = events();
                         Made made;
                         Example example = made.make(1, {2});
                         change(example);
                         add(Split::kTrain, example);
                       },
                       {});
  };
  CHECK_THROWS_AS(built([](Example& example) { example.facts[0] = 120; }), InternalError);
  CHECK_THROWS_AS(built([](Example& example) { example.facts.pop_back(); }), InternalError);
  CHECK_THROWS_AS(built([](Example& example) { example.further[0] = {}; }), InternalError);
  const std::vector<uint8_t> narrow{1, 2};
  CHECK_NOTHROW(built([](Example&) {}));
  CHECK_THROWS_AS(Elements(narrow).as<uint16_t>(), InternalError);
}

TEST_CASE("random batches fill every declared field within its range") {
  Stream numbers(4);
  DataShape shape = events(2);
  shape.target = class_target(3, {.mixed = true});
  const HostBatch batch = random_batch(shape, 50, 4, numbers);
  CHECK((batch.batch == 50 && batch.filled == 50 && batch.columns.size() == fields_of(shape).size()));
  for (const HostColumn& column : batch.columns) {
    const size_t places = column.field.of_tokens() ? 50 * 2 * 4 : 50;
    CHECK(column.whole.size() + column.numbers.size() == places * static_cast<size_t>(column.field.k));
    for (const int64_t value : column.whole) REQUIRE((column.field.range == 0 || value < column.field.range));
  }
  const std::vector<int64_t>& tokens = batch.whole("tokens");
  CHECK(*std::min_element(tokens.begin(), tokens.end()) > 0);  // 0 is padding
  CHECK(std::set<int64_t>(tokens.begin(), tokens.end()).size() > 200);
  CHECK(std::set<int64_t>(batch.whole("second_label").begin(), batch.whole("second_label").end()).size() == 3);
}

namespace {

// One example: 1, 2, 3, ... of which a model reads `window` places at once.
class LongStream : public DataSource {
 public:
  LongStream(int64_t length, int64_t window) {
    info_.shape = {.max_len = window, .vocabulary = 60'000, .target = class_target(1)};
    for (int64_t i = 0; i < length; ++i) ids_.push_back(static_cast<uint16_t>(i + 1));
  }
  [[nodiscard]] int64_t size(Split) const override { return 1; }
  [[nodiscard]] Example read(Split, int64_t) const override { return {{ids_}}; }
  [[nodiscard]] const DataInfo& info() const override { return info_; }

 private:
  std::vector<uint16_t> ids_;
  DataInfo info_;
};

// Row i of batch t + 1 goes on where row i of batch t ended.
class Lanes : public BatchOrder {
 public:
  Lanes(int64_t length, int64_t lanes, int64_t window) : lane_(length / lanes), lanes_(lanes), windows_{window} {}
  [[nodiscard]] int64_t batches_per_epoch() const override { return (lane_ + windows_[0] - 1) / windows_[0]; }
  [[nodiscard]] const std::vector<int64_t>& bucket_lengths() const override { return windows_; }
  void fill(int64_t, int64_t index, BatchRows& into) const override {
    into.padded_len = windows_[0];
    into.width = lanes_;
    into.rows.assign(static_cast<size_t>(lanes_), 0);
    into.begins.clear();
    for (int64_t lane = 0; lane < lanes_; ++lane) into.begins.push_back(lane * lane_ + index * windows_[0]);
  }

 private:
  int64_t lane_, lanes_;
  std::vector<int64_t> windows_;
};

// Every row is a window drawn anew: a pure function of seed, epoch and index.
class RandomWindows : public BatchOrder {
 public:
  RandomWindows(int64_t length, int64_t rows, int64_t window, uint64_t seed)
      : length_(length), rows_(rows), seed_(seed), windows_{window} {}
  [[nodiscard]] int64_t batches_per_epoch() const override { return 10; }
  [[nodiscard]] const std::vector<int64_t>& bucket_lengths() const override { return windows_; }
  void fill(int64_t epoch, int64_t index, BatchRows& into) const override {
    Stream numbers(seed_, static_cast<uint64_t>(epoch * 10 + index));
    into.padded_len = windows_[0];
    into.width = rows_;
    into.rows.assign(static_cast<size_t>(rows_), 0);
    into.begins.clear();
    for (int64_t row = 0; row < rows_; ++row)
      into.begins.push_back(static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(length_ - windows_[0] + 1))));
  }

 private:
  int64_t length_, rows_;
  uint64_t seed_;
  std::vector<int64_t> windows_;
};

}  // namespace

TEST_CASE("lanes of one long stream go on from batch to batch, through the prefetcher") {
  const LongStream source(1000, 8);
  Prefetcher batches(source, Split::kTrain, std::make_unique<Lanes>(1000, 4, 8), 0, 64);
  for (int64_t number = 0; number < 64; ++number) {
    const HostBatch& batch = batches.next();
    REQUIRE((batch.batch == 4 && batch.filled == 4 && batch.padded_len == 8));
    for (int64_t lane = 0; lane < 4; ++lane)
      for (int64_t i = 0; i < 8; ++i) {
        // The last batch of an epoch runs over into the next lane, and of the last lane over the end.
        const int64_t meant = lane * 250 + number % 32 * 8 + i + 1;
        const auto at = static_cast<size_t>(lane * 8 + i);
        REQUIRE(batch.whole("tokens")[at] == (meant <= 1000 ? meant : 0));
        REQUIRE(batch.key_valid[at] == (meant <= 1000));
      }
  }
}

TEST_CASE("random windows of one long stream are functions of seed, epoch and index") {
  const LongStream source(1000, 8);
  const RandomWindows order(1000, 4, 8, 3), again(1000, 4, 8, 3);
  CHECK(order.batch(2, 7).begins == again.batch(2, 7).begins);
  CHECK(order.batch(2, 7).begins != order.batch(3, 7).begins);
  Prefetcher batches(source, Split::kTrain, std::make_unique<RandomWindows>(1000, 4, 8, 3), 27, 28);
  const HostBatch& batch = batches.next();
  for (size_t row = 0; row < 4; ++row) {
    const int64_t first = order.batch(2, 7).begins[row] + 1;
    CHECK((batch.whole("tokens")[row * 8] == first && batch.whole("tokens")[row * 8 + 7] == first + 7));
  }
}

}  // namespace xformer::fields_test
