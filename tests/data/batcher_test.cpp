// The order of examples, the filling of batches and the thread that runs ahead.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "core/error.h"
#include "data/batches/batcher.h"
#include "fake_source.h"
#include "scratch.h"

namespace xformer::batcher_test {

using namespace data;
using Catch::Matchers::Contains;

std::vector<int64_t> lengths_for(int64_t count) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) lengths.push_back(1 + i * 97 % 300);
  return lengths;
}

OrderOptions options_for(int64_t batch, int64_t buckets, bool shuffle = true) {
  OrderOptions options;
  options.batch = batch;
  options.padded_len = 300;
  options.buckets = buckets;
  options.batching.shuffle = shuffle;
  options.seed = 5;
  return options;
}

std::unique_ptr<BatchOrder> order_for(const DataSource& source, const OrderOptions& options) {
  return std::make_unique<ExampleOrder>(source, Split::kTrain, options);
}

TEST_CASE("an epoch has every example once, whatever the batch and the buckets") {
  const int64_t count = GENERATE(1, 7, 96, 100), buckets = GENERATE(1, 2, 3, 7);
  const fake::Source source(lengths_for(count));
  const ExampleOrder order(source, Split::kTrain, options_for(8, buckets));
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::multiset<int64_t> seen;
    for (int64_t i = 0; i < order.batches_per_epoch(); ++i) {
      const BatchRows batch = order.batch(epoch, i);
      CHECK((batch.rows.size() >= 1 && batch.rows.size() <= 8));
      for (const int64_t row : batch.rows) seen.insert(row);
    }
    CHECK(seen.size() == static_cast<size_t>(count));
    CHECK(std::set<int64_t>(seen.begin(), seen.end()).size() == static_cast<size_t>(count));
    CHECK(*seen.rbegin() == count - 1);
  }
}

TEST_CASE("a batch is a function of seed, epoch and index, in whatever order it is asked for") {
  const fake::Source source(lengths_for(100));
  const int64_t buckets = GENERATE(1, 3);
  const ExampleOrder one(source, Split::kTrain, options_for(8, buckets)),
      two(source, Split::kTrain, options_for(8, buckets));
  std::vector<std::vector<int64_t>> batches;
  for (int64_t epoch = 0; epoch < 4; ++epoch)
    for (int64_t i = 0; i < one.batches_per_epoch(); ++i) batches.push_back(one.batch(epoch, i).rows);
  bool same = true;
  for (size_t i = batches.size(); i-- > 0;) {
    const auto place = static_cast<int64_t>(i);
    same = same && two.batch(place / two.batches_per_epoch(), place % two.batches_per_epoch()).rows == batches[i];
  }
  CHECK(same);
  OrderOptions other = options_for(8, buckets);
  other.seed = 6;
  const ExampleOrder reseeded(source, Split::kTrain, other);
  CHECK(reseeded.batch(0, 0).rows != one.batch(0, 0).rows);
  CHECK(one.batch(0, 0).rows != one.batch(1, 0).rows);
}

TEST_CASE("without shuffling one bucket keeps the order of the split") {
  const fake::Source source(lengths_for(10));
  const ExampleOrder order(source, Split::kTrain, options_for(4, 1, false));
  CHECK(order.batches_per_epoch() == 3);
  CHECK(order.batch(0, 0).rows == std::vector<int64_t>{0, 1, 2, 3});
  CHECK(order.batch(7, 2).rows == std::vector<int64_t>{8, 9});
}

TEST_CASE("repeated examples come in a row, each with numbers of its own, and an epoch keeps its size") {
  const fake::Source source(lengths_for(600));
  OrderOptions options = options_for(50, 1);
  options.batching.repeats = 3;
  options.augment = true;
  const ExampleOrder order(source, Split::kTrain, options);
  CHECK(order.batches_per_epoch() == 11);  // 512 of 600: two times 256
  std::map<int64_t, int64_t> times;
  std::set<uint64_t> numbers;
  for (int64_t i = 0; i < 11; ++i) {
    BatchRows batch = order.batch(4, i);
    REQUIRE(batch.row_numbers.size() == batch.rows.size());
    for (size_t row = 0; row < batch.rows.size(); ++row) {
      ++times[batch.rows[row]];
      numbers.insert(batch.row_numbers[row].next_u64());
    }
  }
  CHECK((times.size() == 171 && numbers.size() == 512));
  CHECK(std::count_if(times.begin(), times.end(), [](const auto& one) { return one.second != 3; }) == 1);
  const BatchRows batch = order.batch(4, 0);
  CHECK((batch.rows[0] == batch.rows[2] && batch.rows[2] != batch.rows[3]));
  options.augment = false;
  CHECK(ExampleOrder(source, Split::kTrain, options).batch(4, 0).row_numbers.empty());
}

TEST_CASE("buckets are of equal counts, padded to multiples of 64 and hold their sequences") {
  const std::vector<int64_t> lengths = lengths_for(99);
  const fake::Source source(lengths);
  const ExampleOrder order(source, Split::kTrain, options_for(8, 3));
  const std::vector<int64_t>& padded = order.bucket_lengths();
  REQUIRE(padded.size() == 3);
  CHECK((padded[0] % 64 == 0 && padded[1] % 64 == 0 && padded[2] == 300));
  CHECK((padded[0] < padded[1] && padded[1] < padded[2]));
  std::map<int64_t, int64_t> examples;
  bool mixed = false;
  for (int64_t i = 0; i < order.batches_per_epoch(); ++i) {
    const BatchRows batch = order.batch(0, i);
    mixed = mixed || (i > 0 && batch.padded_len < order.batch(0, i - 1).padded_len);
    for (const int64_t row : batch.rows) CHECK(lengths[static_cast<size_t>(row)] <= batch.padded_len);
    examples[batch.padded_len] += static_cast<int64_t>(batch.rows.size());
  }
  CHECK(examples == std::map<int64_t, int64_t>{{padded[0], 33}, {padded[1], 33}, {padded[2], 33}});
  CHECK(mixed);
}

TEST_CASE("a shuffle of one bucket favours no place") {
  const fake::Source source(std::vector<int64_t>(8, 1));
  const ExampleOrder order(source, Split::kTrain, options_for(8, 1));
  std::array<int, 8> first{};
  for (int64_t epoch = 0; epoch < 8000; ++epoch) ++first[static_cast<size_t>(order.batch(epoch, 0).rows[0])];
  for (const int count : first) CHECK(count == Approx(1000).margin(150));
}

TEST_CASE("an epoch without its partial batch has the full ones of the same order, or the only one there is") {
  for (const auto& [count, batches] : {std::pair<int64_t, int64_t>{20, 2}, {16, 2}, {8, 1}, {5, 1}}) {
    CAPTURE(count);
    const fake::Source source(lengths_for(count));
    OrderOptions options = options_for(8, 1);
    const ExampleOrder whole(source, Split::kTrain, options);
    options.drop_partial = true;
    const ExampleOrder full(source, Split::kTrain, options);
    REQUIRE(full.batches_per_epoch() == batches);
    for (int64_t epoch = 0; epoch < 3; ++epoch)
      for (int64_t i = 0; i < batches; ++i) CHECK(full.batch(epoch, i).rows == whole.batch(epoch, i).rows);
  }
}

TEST_CASE("an empty split has no batches") {
  const fake::Source source({});
  const ExampleOrder order(source, Split::kTrain, options_for(4, 2));
  CHECK(order.batches_per_epoch() == 0);
  CHECK_THROWS_AS(order.batch(0, 0), InternalError);
}

TEST_CASE("cyclic shifts roll what is kept of a sequence, by places drawn for each epoch and example") {
  const fake::Source source({3, 20, 1, 9, 9, 9, 9, 9});
  HostBatch batch;
  fill_batch(source, Split::kTrain, {{1, 0, 2}, 5, {2, 4, 7}}, 3, batch);
  // Five tokens kept of twenty, rolled by two; three, rolled by four; one.
  CHECK(batch.whole("tokens") == std::vector<int64_t>{4, 5, 1, 2, 3, 3, 1, 2, 0, 0, 1, 0, 0, 0, 0});
  CHECK(batch.key_valid == std::vector<uint8_t>{1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0});

  OrderOptions options = options_for(4, 1);
  CHECK(ExampleOrder(source, Split::kTrain, options).batch(0, 0).shifts.empty());
  options.batching.cyclic_shift = 3;
  const ExampleOrder order(source, Split::kTrain, options);
  options.batch = 8;
  const ExampleOrder whole(source, Split::kTrain, options);
  std::array<int, 3> seen{};
  int differs = 0;
  for (int64_t epoch = 0; epoch < 300; ++epoch) {
    std::map<int64_t, int64_t> by_example;
    const BatchRows all = whole.batch(epoch, 0);
    for (size_t i = 0; i < 8; ++i) by_example[all.rows[i]] = all.shifts[i];
    const BatchRows half = order.batch(epoch, 1);
    for (size_t i = 0; i < 4; ++i) {
      CHECK(half.shifts[i] == by_example[half.rows[i]]);
      ++seen[static_cast<size_t>(half.shifts[i])];
    }
    differs += by_example[0] != by_example[1];
  }
  for (const int count : seen) CHECK(count == Approx(400).margin(90));
  CHECK(differs > 100);
}

TEST_CASE("a batch is padded with zeros, cut to its length and its empty rows say so") {
  const fake::Source source({3, 20, 1});
  HostBatch batch;
  fill_batch(source, Split::kTrain, {{1, 0}, 5}, 4, batch);
  CHECK((batch.batch == 4 && batch.padded_len == 5 && batch.filled == 2));
  CHECK(batch.whole("tokens") == std::vector<int64_t>{1, 2, 3, 4, 5, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(batch.key_valid == std::vector<uint8_t>{1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(batch.row_valid == std::vector<uint8_t>{1, 1, 0, 0});
  CHECK(batch.whole("label") == std::vector<int64_t>{1, 0, 0, 0});
  CHECK(batch.indices == std::vector<int64_t>{1, 0, -1, -1});
  const int64_t* place = batch.whole("tokens").data();
  fill_batch(source, Split::kTrain, {{2}, 5}, 4, batch);
  CHECK(batch.whole("tokens").data() == place);  // no allocation the second time
  CHECK(batch.whole("tokens") == std::vector<int64_t>{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(batch.indices == std::vector<int64_t>{2, -1, -1, -1});
  CHECK_THROWS_AS(fill_batch(source, Split::kTrain, {{0, 1, 2}, 5}, 2, batch), InternalError);
}

TEST_CASE("a batch is no wider than its set needs") {
  for (const auto& [count, size] :
       {std::pair{15, 128}, std::pair{33, 32}, std::pair{1, 4}}) {  // 15: AtrialFibrillation
    const fake::Source source(lengths_for(count));
    const OrderOptions options = options_for(size, 1);
    auto order = std::make_unique<ExampleOrder>(source, Split::kTrain, options);
    const int64_t batches = 2 * order->batches_per_epoch();
    Prefetcher prefetcher(source, Split::kTrain, std::move(order), 0, batches);
    for (int64_t i = 0; i < batches; ++i) {
      const HostBatch& batch = prefetcher.next();
      CHECK((batch.batch == std::min(size, count) && batch.filled >= 1));
    }
  }
}

TEST_CASE("33 examples in batches of 32 count 33") {
  const fake::Source source(lengths_for(33));
  const ExampleOrder order(source, Split::kTrain, options_for(32, 1, false));
  int64_t counted = 0;
  HostBatch batch;
  for (int64_t i = 0; i < order.batches_per_epoch(); ++i) {
    fill_batch(source, Split::kTrain, order.batch(0, i), 32, batch);
    for (const uint8_t valid : batch.row_valid) counted += valid;
  }
  CHECK(counted == 33);
}

TEST_CASE("the prefetcher hands out the very batches of the order, from any first one") {
  const fake::Source source(lengths_for(50));
  const OrderOptions options = options_for(8, GENERATE(1, 3));
  const ExampleOrder order(source, Split::kTrain, options);
  const int64_t first = GENERATE(0, 5, 13), per_epoch = order.batches_per_epoch();
  Prefetcher prefetcher(source, Split::kTrain, order_for(source, options), first, first + 40);
  std::set<const HostBatch*> buffers;
  HostBatch expected;
  for (int64_t number = first; number < first + 40; ++number) {
    const HostBatch& batch = prefetcher.next();
    const BatchRows rows = order.batch(number / per_epoch, number % per_epoch);
    fill_batch(source, Split::kTrain, rows, rows.width, expected);
    REQUIRE(batch.indices == expected.indices);
    REQUIRE(batch.whole("tokens") == expected.whole("tokens"));
    REQUIRE(batch.padded_len == expected.padded_len);
    CHECK(batch.made_in > 0);
    buffers.insert(&batch);
  }
  CHECK(buffers.size() == 2);
  CHECK_THROWS_AS(prefetcher.next(), InternalError);
}

TEST_CASE("a prefetcher may end before its last batch, or have none") {
  const fake::Source source(lengths_for(50));
  {
    Prefetcher prefetcher(source, Split::kTrain, order_for(source, options_for(8, 1)), 0, 1'000'000);
    CHECK(prefetcher.next().filled == 8);
  }
  Prefetcher none(source, Split::kTrain, order_for(source, options_for(8, 1)), 3, 3);
  CHECK_THROWS_AS(none.next(), InternalError);
}

TEST_CASE("an exception of the thread is thrown by next, after the batches made before it") {
  fake::Source source(std::vector<int64_t>(10, 4));
  source.fails_at = 5;
  Prefetcher prefetcher(source, Split::kTrain, order_for(source, options_for(2, 1, false)), 0, 5);
  CHECK(prefetcher.next().indices[0] == 0);
  CHECK(prefetcher.next().indices[0] == 2);
  CHECK_THAT(scratch::message_of<DataError>([&] { (void)prefetcher.next(); }), Contains("cannot be read"));
  CHECK_THROWS_AS(prefetcher.next(), DataError);
}

TEST_CASE("splits are known by name, and val is dev") {
  for (const Split split : kAllSplits) CHECK(parse_split(split_name(split)) == split);
  CHECK(parse_split("val") == Split::kDev);
  CHECK(parse_split("Validation") == Split::kDev);
  CHECK_THAT(scratch::message_of<UserError>([] { (void)parse_split("tset"); }), Contains("did you mean 'test'?"));
}

}  // namespace xformer::batcher_test
