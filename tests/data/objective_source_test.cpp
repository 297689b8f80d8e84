// A task's inputs as what is asked: which ids are hidden or told, which rows they come from, and what is refused.
#include "data/objective_source.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "core/error.h"
#include "data/batches/batcher.h"
#include "data/datasets.h"
#include "scratch.h"

namespace xformer::objective_source_test {

using namespace data;
using Catch::Matchers::Contains;

namespace {

// Training row i holds ids 1 + (7 i + 3 j) % 15 at places j, 0 (padding) at every fifth; whoever reads dev or test is
// told so.
class Rows : public DataSource {
 public:
  explicit Rows(int64_t rows, int64_t first_label = 0) : first_label_(first_label) {
    info_.shape = {.max_len = 30, .vocabulary = 16, .target = class_target(10)};
    info_.sizes = {rows, 6, 7};
    info_.details = {{"dev", "test"}, {"classes", {"a", "b"}}, {"files", 3}};
  }
  [[nodiscard]] int64_t size(Split split) const override { return info_.sizes[static_cast<size_t>(split)]; }
  [[nodiscard]] const DataInfo& info() const override { return info_; }
  [[nodiscard]] std::string name(Split split, int64_t index) const override {
    return fmt::format("{}/{}", split_name(split), index);
  }
  [[nodiscard]] Example read(Split split, int64_t index) const override {
    if (split != Split::kTrain) throw InternalError("a row of " + split_name(split) + " was read");
    static thread_local std::vector<uint8_t> ids;
    ids.resize(static_cast<size_t>(12 + index % 25));
    for (size_t j = 0; j < ids.size(); ++j)
      ids[j] = j % 5 == 4 ? 0 : static_cast<uint8_t>(1 + (7 * static_cast<size_t>(index) + 3 * j) % 15);
    return {{ids}, {}, first_label_ + index % 10};
  }

  DataInfo info_;

 private:
  int64_t first_label_;
};

BatchingOptions objective(const std::string& name, double share = 0.15) {
  BatchingOptions options;
  options.objective = name;
  options.masked_share = share;
  return options;
}

struct Asked {
  std::vector<int64_t> ids, labels;
  bool operator==(const Asked&) const = default;
};
Asked asked_of(const Example& example, int64_t offset = 0) {
  Asked result;
  example.ids[0].visit([&](const auto& ids) {
    for (const auto id : ids) result.ids.push_back(static_cast<int64_t>(id) + offset);
  });
  for (const int32_t label : example.further.back().as<int32_t>()) result.labels.push_back(label);
  return result;
}
// Of a training row as the task has it, cut to what a model reads.
std::vector<int64_t> own_ids(const Rows& rows, int64_t row) {
  std::vector<int64_t> result;
  for (const uint8_t id : rows.read(Split::kTrain, row).ids[0].as<uint8_t>()) result.push_back(id);
  result.resize(std::min<size_t>(result.size(), 30));
  return result;
}

template <class Action>
std::string refusal(const Action& action) {
  return scratch::message_of<UserError>(action);
}

}  // namespace

TEST_CASE("masked hides a share of the ids behind one that is no symbol, and asks for those alone", "[objective]") {
  const Rows rows(80);
  for (const double share : {0.15, 0.5, 1.0}) {
    const auto source = under_objective(std::make_unique<Rows>(80), objective("masked", share));
    CHECK(source->info().shape.vocabulary == 17);
    CHECK(source->info().shape.masks);
    CHECK(source->info().shape.target.classes() == 15);
    CHECK(source->info().shape.target.parameters["causal"] == false);
    for (int64_t i = 0; i < 38; ++i) {
      const std::vector<int64_t> ids = own_ids(rows, i);
      const Asked asked = asked_of(source->read(Split::kTrain, i));
      REQUIRE(asked.ids.size() == ids.size());
      int64_t hidden = 0, symbols = 0;
      for (size_t j = 0; j < ids.size(); ++j) {
        symbols += ids[j] > 0 ? 1 : 0;
        hidden += asked.labels[j] != kNoLabel ? 1 : 0;
        CHECK(asked.ids[j] == (asked.labels[j] != kNoLabel ? 16 : ids[j]));
        if (asked.labels[j] != kNoLabel) CHECK(asked.labels[j] == ids[j] - 1);
      }
      CHECK(hidden == static_cast<int64_t>(share * static_cast<double>(symbols) + 0.5));
    }
  }
}

TEST_CASE("causal asks at each place for the next id, and for no padding and behind none", "[objective]") {
  const Rows rows(80);
  const auto source = under_objective(std::make_unique<Rows>(80), objective("causal"));
  CHECK(source->info().shape.vocabulary == 16);
  CHECK_FALSE(source->info().shape.masks);
  CHECK(source->info().shape.target.parameters["causal"] == true);
  for (int64_t i = 0; i < 38; ++i) {
    const std::vector<int64_t> ids = own_ids(rows, i);
    const Asked asked = asked_of(source->read(Split::kTrain, i));
    CHECK(asked.ids == ids);
    for (size_t j = 0; j < ids.size(); ++j) {
      const bool told = j + 1 < ids.size() && ids[j] > 0 && ids[j + 1] > 0;
      CHECK(asked.labels[j] == (told ? ids[j + 1] - 1 : kNoLabel));
    }
  }
}

TEST_CASE("ids that begin at one, or at a zero that is no padding, are asked for by their own number", "[objective]") {
  class Other : public Rows {
   public:
    explicit Other(bool bytes) : Rows(40) {
      if (bytes) info_.shape.id_offset = 1, info_.shape.vocabulary = 17;
      else info_.shape.zero_is_padding = false;
    }
  };
  for (const bool bytes : {true, false}) {
    CAPTURE(bytes);
    const Other rows(bytes);
    const auto source = under_objective(std::make_unique<Other>(bytes), objective("masked", 1));
    CHECK(source->info().shape.target.classes() == 16);
    const Asked asked = asked_of(source->read(Split::kTrain, 3), bytes ? 1 : 0);
    CHECK(asked.labels == own_ids(rows, 3));  // every one is hidden; a stored 0 is the first symbol
    CHECK(std::set<int64_t>(asked.ids.begin(), asked.ids.end()) == std::set<int64_t>{bytes ? 17 : 16});
  }
}

TEST_CASE("evaluations always hide the same, training something else at every look, and the same again",
          "[objective]") {
  const auto one = under_objective(std::make_unique<Rows>(120), objective("masked", 0.3)),
             two = under_objective(std::make_unique<Rows>(120), objective("masked", 0.3));
  for (const Split split : {Split::kDev, Split::kTest})
    for (int64_t i = 0; i < one->size(split); ++i) {
      const Asked first = asked_of(one->read(split, i));
      CHECK(asked_of(one->read(split, i)) == first);
      CHECK(asked_of(two->read(split, i)) == first);
    }
  const OrderOptions options{.batch = 8, .padded_len = 30, .seed = 5, .augment = true};
  const auto tokens = [&](const DataSource& source, int64_t epoch) {
    const ExampleOrder order(source, Split::kTrain, options);
    HostBatch batch;
    fill_batch(source, Split::kTrain, order.batch(epoch, 0), 8, batch);
    return std::pair(batch.whole("tokens"), batch.whole("label"));
  };
  CHECK(tokens(*one, 3) == tokens(*two, 3));
  CHECK(tokens(*one, 3) != tokens(*one, 4));
  // The same row at two looks.
  const auto look = [&](uint64_t number) {
    Stream numbers(1, number);
    return asked_of(one->augmented(Split::kTrain, 7, numbers));
  };
  CHECK(look(0) == look(0));
  CHECK_FALSE(look(0) == look(1));
}

TEST_CASE("rows are the task's train alone, each in one split; dev and test of the task are never read",
          "[objective]") {
  for (const int64_t all : {3, 39, 40, 41, 79, 80, 97, 400}) {
    CAPTURE(all);
    const auto source = under_objective(std::make_unique<Rows>(all), objective("causal"));
    std::multiset<std::string> seen;
    for (const Split split : kAllSplits)
      for (int64_t i = 0; i < source->size(split); ++i) {
        CHECK_NOTHROW(source->read(split, i));
        seen.insert(source->name(split, i));
      }
    CHECK(static_cast<int64_t>(seen.size()) == all);
    for (int64_t i = 0; i < all; ++i) CHECK(seen.count(fmt::format("train/{}", i)) == 1);
    CHECK(source->size(Split::kDev) == std::max<int64_t>(1, all / 40));
    CHECK(source->size(Split::kTest) == source->size(Split::kDev));
    CHECK(source->info().sizes[0] == source->size(Split::kTrain));
  }
  CHECK_THAT(
      scratch::message_of<DataError>([] { (void)under_objective(std::make_unique<Rows>(2), objective("masked")); }),
      Contains("expected 3 or more, got 2"));
}

TEST_CASE("the task's labels leave no trace, nor what its details say of its splits and classes", "[objective]") {
  for (const char* name : {"masked", "causal"}) {
    const auto one = under_objective(std::make_unique<Rows>(60), objective(name)),
               other = under_objective(std::make_unique<Rows>(60, 4), objective(name));
    const auto filled = [](const DataSource& source) {
      HostBatch batch;
      BatchRows rows;
      for (int64_t i = 0; i < 20; ++i) rows.rows.push_back(i);
      rows.padded_len = 30;
      fill_batch(source, Split::kTrain, rows, 20, batch);
      return batch;
    };
    const HostBatch a = filled(*one), b = filled(*other);
    REQUIRE(a.columns.size() == 2);  // tokens and label of places
    for (size_t i = 0; i < a.columns.size(); ++i) CHECK(a.columns[i].whole == b.columns[i].whole);
    CHECK(one->read(Split::kDev, 0).label == 0);
    const Json& details = one->info().details;
    CHECK_FALSE(details.contains("dev"));
    CHECK_FALSE(details.contains("classes"));
    CHECK(details["files"] == 3);
    CHECK(details["objective"]["name"] == name);
    CHECK(details["objective"].contains("masked_share") == (std::string(name) == "masked"));
  }
}

TEST_CASE("an example is shown with what is hidden and what is to be found", "[objective]") {
  const auto source = under_objective(std::make_unique<Rows>(40), objective("masked", 0.1));
  const std::string text = source->shown(source->read(Split::kTrain, 0));
  CHECK_THAT(text, Contains("[MASK]") && Contains("to be found: "));
}

TEST_CASE("every dataset has the objective, and takes it where its examples are one sequence of ids", "[objective]") {
  const auto shape = [](const std::string& task, const std::string& name) {
    const DatasetDescriptor& dataset = find_dataset(task);
    Json options = Json::object();
    for (const OptionInfo& option : dataset.options) options[option.name] = option.fallback;
    options["objective"] = name;
    return dataset.shape(options);
  };
  for (const char* task : {"listops", "text", "image", "pathfinder32", "hfdna", "promoter", "longdoc/arxiv"})
    for (const char* name : {"masked", "causal"}) {
      CAPTURE(task, name);
      const DataShape own = shape(task, "task"), asked = shape(task, name);
      CHECK(asked.target.of_places());
      CHECK(asked.max_len == own.max_len);
      CHECK(asked.side == own.side);
      CHECK(asked.vocabulary == own.vocabulary + (asked.masks ? 1 : 0));
    }
  CHECK_THAT(refusal([&] { (void)shape("retrieval", "masked"); }), Contains("pairs of sequences"));
  CHECK_THAT(refusal([&] { (void)shape("uea/Heartbeat", "masked"); }), Contains("places hold numbers"));
  CHECK_THAT(refusal([&] { (void)shape("bytes/enwik8", "causal"); }), Contains("an answer at every place already"));
  // What the paper hides: pixels, tokens of expressions, all else.
  const auto share = [](const std::string& task) {
    for (const OptionInfo& option : find_dataset(task).options)
      if (option.name == "masked_share") return option.fallback.get<double>();
    return 0.0;
  };
  CHECK((share("image") == 0.5 && share("pathfinder32") == 0.5 && share("path-x") == 0.5));
  CHECK((share("listops") == 0.1 && share("text") == 0.15));
  CHECK_THAT(refusal([&] {
               find_dataset("listops").check_options({{"masked_share", 0.5}});
             }),
             Contains("data.masked_share") && Contains("nothing is masked"));
}

}  // namespace xformer::objective_source_test
