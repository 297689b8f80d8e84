// Sequences that stand some places later: which place comes where, and what is valid.
#include "data/shifted_source.h"

#include <catch2/catch.hpp>

#include "core/error.h"
#include "data/batches/batcher.h"
#include "data/transactions/event_features.h"
#include "fake_source.h"
#include "scratch.h"

namespace xformer::shifted_source_test {

using namespace data;
using Catch::Matchers::Contains;
using Numbers = std::vector<float>;

// Events of an amount and a code; every user has `lengths` of them: 1, 2, 3, ..
class Users : public DataSource {
 public:
  explicit Users(std::vector<int64_t> lengths) : lengths_(std::move(lengths)) {
    info_.shape = events_shape(4, 1, {9}, 2);
    info_.sizes = {static_cast<int64_t>(lengths_.size()), 0, 0};
  }
  [[nodiscard]] int64_t size(Split split) const override { return info_.sizes[static_cast<size_t>(split)]; }
  [[nodiscard]] const DataInfo& info() const override { return info_; }
  [[nodiscard]] Example read(Split, int64_t index) const override {
    static thread_local Numbers values;
    values.clear();
    for (int64_t i = 1; i <= lengths_[static_cast<size_t>(index)]; ++i) {
      values.push_back(static_cast<float>(10 * i));
      values.push_back(static_cast<float>(i + 1));
    }
    return {{}, values, 1};
  }

 private:
  std::vector<int64_t> lengths_;
  DataInfo info_;
};

HostBatch batch_of(const DataSource& source, int64_t rows) {
  BatchRows wanted;
  for (int64_t i = 0; i < rows; ++i) wanted.rows.push_back(i);
  wanted.padded_len = 5;
  HostBatch batch;
  fill_batch(source, Split::kTrain, wanted, rows, batch);
  return batch;
}

TEST_CASE("roll brings the newest places to the front, within a sequence", "[shifted_source]") {
  const Users users({4, 1});
  const HostBatch one = batch_of(*shifted(users, parse_shift("roll", 1)), 2);
  CHECK(one.numbers("values") == Numbers{40, 5, 10, 2, 20, 3, 30, 4, 0, 0, 10, 2, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(one.key_valid == std::vector<uint8_t>{1, 1, 1, 1, 0, 1, 0, 0, 0, 0});
  CHECK(one.whole("label") == std::vector<int64_t>{1, 1});
  CHECK(batch_of(*shifted(users, parse_shift("roll", 5)), 1).numbers("values") ==
        Numbers{40, 5, 10, 2, 20, 3, 30, 4, 0, 0});
  CHECK(batch_of(*shifted(users, parse_shift("roll", 4)), 1).numbers("values") == batch_of(users, 1).numbers("values"));
}

TEST_CASE("drop-newest leaves out the newest places, and the oldest are padding", "[shifted_source]") {
  const Users users({4, 1, 2});
  const HostBatch one = batch_of(*shifted(users, parse_shift("drop-newest", 1)), 3);
  CHECK(one.numbers("values") ==
        Numbers{0, 0, 10, 2, 20, 3, 30, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 2, 0, 0, 0, 0, 0, 0});
  CHECK(one.key_valid == std::vector<uint8_t>{0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0});
  CHECK(batch_of(*shifted(users, parse_shift("drop-newest", 9)), 1).key_valid == std::vector<uint8_t>(5, 0));
}

TEST_CASE("ids move as events do; what cannot be padding is refused", "[shifted_source]") {
  const fake::Source ids({3});
  const std::vector<int64_t> plain = batch_of(ids, 1).whole("tokens");
  const HostBatch rolled = batch_of(*shifted(ids, parse_shift("roll", 1)), 1);
  CHECK(rolled.whole("tokens") == std::vector<int64_t>{plain[2], plain[0], plain[1], 0, 0});
  CHECK_THAT(scratch::message_of<UserError>([] { (void)parse_shift("rol", 1); }), Contains("did you mean 'roll'?"));
  class Series : public Users {
   public:
    Series() : Users({3}) { shape_.shape.width = 2; }
    [[nodiscard]] const DataInfo& info() const override { return shape_; }

   private:
    DataInfo shape_;
  };
  const Series series;
  CHECK_THAT(scratch::message_of<UserError>([&] { (void)shifted(series, parse_shift("drop-newest", 1)); }),
             Contains("nothing means padding"));
  CHECK_NOTHROW(shifted(series, parse_shift("roll", 1)));
}

}  // namespace xformer::shifted_source_test
