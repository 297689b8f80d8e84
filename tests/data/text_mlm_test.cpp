// Masked documents: their segments, how many places are asked and what stands there, masks that are drawn and such that
// are fixed.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "core/error.h"
#include "data/adapter_place.h"
#include "data/batches/batcher.h"
#include "data/text/masking.h"

namespace xformer::text_mlm_test {

using namespace data;
using adapter_place::Place;
using Catch::Matchers::Contains;

namespace {

constexpr int32_t kClass = 1, kSeparator = 2, kMask = 3, kFirstPiece = 4;

void put_sample(const Place& place) {
  for (const char* name : {"train.jsonl", "validation.txt", "test.txt"})
    scratch::put(place.folder / name, scratch::get(Path(XFORMER_SOURCE) / "datasets/text-lm/sample" / name));
}

Json small(const Json& more = Json::object()) {
  Json options{{"length", 48}, {"pieces", 400}};
  options.update(more);
  return options;
}

struct Masked {
  std::vector<int32_t> ids, labels;
  std::vector<uint8_t> segments;
  // With what was asked put back.
  [[nodiscard]] std::vector<int32_t> whole() const {
    std::vector<int32_t> result = ids;
    for (size_t i = 0; i < ids.size(); ++i)
      if (labels[i] != kNoLabel) result[i] = labels[i] + kFirstPiece;
    return result;
  }
};
Masked taken(const Example& example) {
  Masked result;
  example.ids[0].visit([&](const auto& ids) { result.ids.assign(ids.begin(), ids.end()); });
  const auto segments = example.further[0].as<uint8_t>();
  const auto labels = example.further[1].as<int32_t>();
  result.segments.assign(segments.begin(), segments.end());
  result.labels.assign(labels.begin(), labels.end());
  return result;
}

}  // namespace

TEST_CASE("exactly the share is masked: four fifths as the mask, a tenth as any symbol, a tenth as it is", "[masks]") {
  std::map<MaskKind, int64_t> kinds;
  std::map<int64_t, int64_t> places;
  std::vector<int64_t> drawn(7, 0);
  constexpr int64_t kTimes = 4000;
  for (uint64_t i = 0; i < kTimes; ++i) {
    Stream numbers(5, i), again(5, i);
    const std::vector<MaskedPlace> masks = drawn_masks(50, 7, {}, numbers);
    REQUIRE(masks.size() == 8);  // 7.5 of 50
    std::set<int64_t> different;
    for (const MaskedPlace& one : masks) {
      REQUIRE((one.place >= 0 && one.place < 50));
      different.insert(one.place);
      ++places[one.place];
      ++kinds[one.kind];
      if (one.kind == MaskKind::kReplaced) ++drawn.at(one.drawn);
    }
    REQUIRE(different.size() == 8);
    REQUIRE(drawn_masks(50, 7, {}, again)[3].place == masks[3].place);
  }
  const auto near = [](int64_t found, double share, int64_t of) {
    const double meant = share * static_cast<double>(of);
    return std::abs(static_cast<double>(found) - meant) < 5 * std::sqrt(meant * (1 - share));
  };
  constexpr int64_t kAll = 8 * kTimes;
  CHECK(near(kinds[MaskKind::kMask], 0.8, kAll));
  CHECK(near(kinds[MaskKind::kReplaced], 0.1, kAll));
  CHECK(near(kinds[MaskKind::kKept], 0.1, kAll));
  for (int64_t place = 0; place < 50; ++place) CHECK(near(places[place], 0.02, kAll));
  for (const int64_t count : drawn) CHECK(near(count, 1.0 / 7, kinds[MaskKind::kReplaced]));
  Stream numbers(1);
  CHECK(drawn_masks(1, 7, {}, numbers).size() == 1);  // one at least
  CHECK(drawn_masks(0, 7, {}, numbers).empty());
  CHECK(drawn_masks(40, 7, {.share = 1}, numbers).size() == 40);
}

TEST_CASE("sequences are stretches of two documents at most, and together every piece once", "[text-mlm]") {
  const Place place, plain;
  put_sample(place), put_sample(plain);
  const auto stream = plain.open("text-lm/mill", {{"length", 32}, {"pieces", 400}});
  for (const int64_t length : {4, 5, 17, 48, 300}) {
    CAPTURE(length);
    const auto source = place.open("text-mlm/mill", small({{"length", length}}));
    CHECK((source->info().shape.vocabulary == 404 && source->info().shape.target.classes() == 400));
    for (const Split split : kAllSplits) {
      std::vector<int32_t> meant, found;  // pieces but </s>
      for (int64_t i = 0; i < stream->size(split); ++i) {
        const Example one = stream->read(split, i);
        for (const int32_t piece : one.further[0].as<int32_t>()) meant.push_back(piece);
      }
      const int32_t end = meant.back();  // every document ends in it
      std::erase(meant, end);
      for (int64_t i = 0; i < source->size(split); ++i) {
        const Masked one = taken(source->read(split, i));
        const std::vector<int32_t> whole = one.whole();
        REQUIRE(static_cast<int64_t>(whole.size()) <= length);
        REQUIRE((whole.front() == kClass && whole.back() == kSeparator));
        const auto separators = std::count(whole.begin(), whole.end(), kSeparator);
        REQUIRE((separators == 1 || separators == 2));
        uint8_t segment = 0;
        for (size_t at = 0; at < whole.size(); ++at) {
          REQUIRE(one.segments[at] == segment);
          if (whole[at] == kSeparator) segment = 1;
          if (whole[at] >= kFirstPiece) found.push_back(whole[at] - kFirstPiece);
          else REQUIRE((one.labels[at] == kNoLabel && whole[at] != kMask));
        }
      }
      REQUIRE(found == meant);
    }
  }
}

TEST_CASE("masks of evaluation are fixed, those of training are drawn anew", "[text-mlm]") {
  const Place place;
  put_sample(place);
  const auto source = place.open("text-mlm/mill", small());
  const auto again = place.open("text-mlm/mill", small()),
             other = place.open("text-mlm/mill", small({{"mask_seed", 1}}));
  bool differs = false;
  for (int64_t i = 0; i < source->size(Split::kDev); ++i) {
    const Masked one = taken(source->read(Split::kDev, i));
    REQUIRE(taken(again->read(Split::kDev, i)).ids == one.ids);
    REQUIRE(taken(other->read(Split::kDev, i)).whole() == one.whole());
    differs = differs || taken(other->read(Split::kDev, i)).labels != one.labels;
    const auto pieces =
        static_cast<int64_t>(one.ids.size()) - 1 - std::count(one.ids.begin(), one.ids.end(), kSeparator);
    const auto asked =
        static_cast<int64_t>(one.labels.size()) - std::count(one.labels.begin(), one.labels.end(), kNoLabel);
    REQUIRE(asked == std::max<int64_t>(1, std::lround(std::floor(0.15 * static_cast<double>(pieces) + 0.5))));
  }
  CHECK(differs);
  Stream first(3, 0), second(3, 1);
  const Masked one = taken(source->augmented(Split::kTrain, 0, first));
  const Masked two = taken(source->augmented(Split::kTrain, 0, second));
  CHECK(one.labels != two.labels);
  CHECK(one.whole() == two.whole());
  HostBatch batch;
  fill_batch(*source, Split::kTest, {{0, 1}, 48}, 2, batch);
  CHECK(std::count(batch.key_valid.begin(), batch.key_valid.end(), 1) ==
        96 - std::count(batch.whole("tokens").begin(), batch.whole("tokens").end(), 0));
  CHECK_THAT(source->shown(source->read(Split::kTest, 0)),
             Contains("[CLS]|") && Contains("[MASK]") && Contains("to be found"));
}

}  // namespace xformer::text_mlm_test
