// Pathfinder from folders as the Long Range Arena distributes them and from the generator, and what is refused.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <numeric>
#include <set>

#include "core/error.h"
#include "data/adapter_place.h"
#include "data/batches/batcher.h"
#include "data/cache/cache.h"
#include "data/check.h"
#include "data/datasets.h"
#include "data/pathfinder/pathfinder_files.h"
#include "data/pathfinder/pathfinder_generator.h"
#include "scratch.h"

namespace xformer::pathfinder_adapter_test {

using namespace data;
using adapter_place::options_of;
using adapter_place::Place;
using Catch::Matchers::Contains;
using scratch::Folder;

namespace {

// `files` metadata files of `each` images of 32 x 32; the first pixel of an image says which it is.
void make_set(const Path& set, int64_t files, int64_t each) {
  for (int64_t k = 0; k < files; ++k) {
    const Path images = set / "imgs" / std::to_string(k);
    std::filesystem::create_directories(images);
    std::filesystem::create_directories(set / "metadata");
    std::string rows;
    for (int64_t i = 0; i < each; ++i) {
      readers::Image image{32, 32, 1, std::vector<uint8_t>(1024, static_cast<uint8_t>(i % 2 == 0 ? 0 : 50))};
      image.pixels[0] = static_cast<uint8_t>(k * each + i + 1);
      scratch::put(images / fmt::format("sample_{}.png", i), readers::encode_png(image));
      rows += fmt::format("imgs/{} sample_{}.png {} {} 1.0 14 4.666666666666667 2 0.5 1 1\n", k, i, i, i % 2);
    }
    scratch::put(set / "metadata" / fmt::format("{}.npy", k), rows);
  }
}

// Why it is refused; nothing is left behind.
std::string refusal(const Place& place, const std::string& task, const Json& given = Json::object()) {
  const std::string message = scratch::message_of<DataError>([&] { (void)place.open(task, given); });
  CHECK(place.cache_is_empty());
  return message;
}

// The first pixels of a split, which say which images are in it.
std::set<int> ids_of(const DataSource& source, Split split) {
  std::set<int> ids;
  for (int64_t i = 0; i < source.size(split); ++i) ids.insert(source.read(split, i).ids[0].as<uint8_t>()[0]);
  return ids;
}

}  // namespace

TEST_CASE("pathfinder32: a seeded tenth each for dev and test, every image once, black as padding or not") {
  const Place place;
  make_set(place.folder / "pathfinder32/curv_contour_length_14", 3, 20);
  const auto source = place.open("pathfinder32");
  CHECK((source->size(Split::kTrain) == 48 && source->size(Split::kDev) == 6 && source->size(Split::kTest) == 6));
  std::set<int> all;
  for (const Split split : kAllSplits) all.merge(ids_of(*source, split));
  CHECK(all.size() == 60);
  const Example example = source->read(Split::kTrain, 0);
  CHECK(example.label == (example.ids[0].as<uint8_t>()[1] == 50 ? 1 : 0));  // the label stays with its image
  CHECK((source->info().shape.max_len == 1024 && source->info().shape.vocabulary == 256 &&
         source->info().shape.target.classes() == 2));
  HostBatch masked, clean;
  fill_batch(*source, Split::kTrain, {{0, 1}, 1024}, 2, masked);
  const auto unmasked = place.open("pathfinder32", {{"mask_zero_pixels", false}});
  CHECK(unmasked->info().sha256 == source->info().sha256);
  fill_batch(*unmasked, Split::kTrain, {{0, 1}, 1024}, 2, clean);
  CHECK(std::accumulate(clean.key_valid.begin(), clean.key_valid.end(), 0) == 2048);
  CHECK(std::accumulate(masked.key_valid.begin(), masked.key_valid.end(), 0) < 2048);
  CHECK(ids_of(*place.open("pathfinder32", {{"split_seed", 1}}), Split::kTest) != ids_of(*source, Split::kTest));
}

TEST_CASE("the folder may be the release's, the size's or the set's own") {
  const Place place;
  const Path deep = place.folder / "lra_release/lra_release/pathfinder32/curv_contour_length_9";
  make_set(deep, 1, 10);
  const auto source = place.open("pathfinder32-inter");
  for (const Path& folder : {deep, deep.parent_path()}) {
    DataLocation location = place.location();
    location.folder = folder;
    CHECK(find_dataset("pathfinder32-inter").open(options_of("pathfinder32-inter"), location, {})->info().sha256 ==
          source->info().sha256);
  }
  CHECK_THROWS_WITH(place.open("pathfinder32"), Contains("curv_contour_length_14") && Contains("lra_release"));
}

TEST_CASE("pathfinder32-mixed: three sets, by the files' numbers where data.split says so") {
  const Place place;
  for (const char* set : {"curv_baseline", "curv_contour_length_9", "curv_contour_length_14"})
    make_set(place.folder / "pathfinder32" / set, 21, 2);
  const auto source = place.open("pathfinder32-mixed", {{"split", "files"}});
  CHECK((source->size(Split::kTest) == 60 && source->size(Split::kDev) == 60 && source->size(Split::kTrain) == 6));
  CHECK(ids_of(*source, Split::kTrain) == std::set<int>{41, 42});
  CHECK(ids_of(*source, Split::kTest).count(1) == 1);
  const auto seeded = place.open("pathfinder32-mixed");
  CHECK((seeded->size(Split::kTest) == 12 && seeded->size(Split::kTrain) == 102));
  const Place small;
  make_set(small.folder / "pathfinder32/curv_contour_length_14", 3, 2);
  CHECK_THAT(refusal(small, "pathfinder32", {{"split", "files"}}),
             Contains("twenty metadata files") && Contains("has 3"));
}

TEST_CASE("an image without bytes is left out and counted, one that is missing or of another size refused") {
  const Place place;
  const Path set = place.folder / "curv_contour_length_14";
  make_set(set, 1, 20);
  const Path image = set / "imgs/0/sample_7.png";
  scratch::put(image, "");
  const auto source = place.open("pathfinder32");
  CHECK(source->size(Split::kTrain) + source->size(Split::kDev) + source->size(Split::kTest) == 19);
  REQUIRE(source->info().dropped.size() == 1);
  CHECK((source->info().dropped[0].count == 1 && source->info().dropped[0].reason.find("empty") != std::string::npos));
  const CheckReport report = find_dataset("pathfinder32").check(options_of("pathfinder32"), place.location(), {});
  CHECK(report.passed);
  CHECK_THAT(report.json().dump(), Contains("mean_grey") && Contains("share_not_black") && Contains("is empty"));

  const Place faulty;
  make_set(faulty.folder / "curv_contour_length_14", 1, 3);
  const Path second = faulty.folder / "curv_contour_length_14/imgs/0/sample_1.png";
  std::filesystem::remove(second);
  CHECK_THAT(refusal(faulty, "pathfinder32"), Contains("0.npy:2") && Contains("sample_1.png is missing"));
  scratch::put(second, readers::encode_png({16, 32, 1, std::vector<uint8_t>(512, 1)}));
  CHECK_THAT(refusal(faulty, "pathfinder32"),
             Contains("sample_1.png") && Contains("expected 32 x 32 pixels, found 16 x 32"));
  scratch::put(second, "no image");
  CHECK_THAT(refusal(faulty, "pathfinder32"), Contains("sample_1.png") && Contains("expected a PNG image"));
}

TEST_CASE("metadata that is not as distributed is refused with line and field") {
  const Folder folder;
  const auto refusal = [&](const std::string& text) {
    const Path file = scratch::put(folder / "0.npy", text);
    return scratch::message_of<DataError>([&] { (void)readers::pathfinder::read_metadata(file); });
  };
  const std::string good = "imgs/0 sample_0.png 0 1 1.0 14 4.666666666666667 2 0.5 1 1\n";
  CHECK(readers::pathfinder::read_metadata(scratch::put(folder / "1.npy", good + good)).size() == 2);
  CHECK_THAT(refusal(""), Contains("is empty"));
  CHECK_THAT(refusal(good + "imgs/0 sample_1.png 1 1\n"),
             Contains("0.npy:2") && Contains("11 fields") && Contains("found 4"));
  CHECK_THAT(refusal("imgs/0 a.png 0 2 1.0 14 4 2 0.5 1 1\n"), Contains("field 4 (label)") && Contains("'2'"));
  CHECK_THAT(refusal("imgs/0 a.png 0 1 x 14 4 2 0.5 1 1\n"), Contains("field 5 (continuity)") && Contains("'x'"));
  for (const char* name : {"../imgs a.png", "/etc a.png", "imgs/../.. a.png", "imgs ../a.png", "imgs ..", " a.png"})
    CHECK_THAT(refusal(std::string(name) + " 0 1 1.0 14 4 2 0.5 1 1\n"), Contains("below the folder"));
}

TEST_CASE("without a folder the images are drawn, the same whatever asks for them") {
  const Folder cache, other;
  const Json small{{"train_examples", 30}, {"dev_examples", 5}, {"test_examples", 4}};
  for (const char* task : {"pathfinder32", "pathfinder32-inter", "pathfinder32-easy", "pathfinder32-mixed", "path-x"}) {
    CAPTURE(task);
    const auto open = [&](const Path& place, const Json& given) {
      DataLocation location;
      location.cache = place;
      return find_dataset(task).open(options_of(task, given), location, {});
    };
    const auto source = open(cache.path(), small);
    CHECK((source->size(Split::kTrain) == 30 && source->size(Split::kDev) == 5 && source->size(Split::kTest) == 4));
    const int64_t side = std::string(task) == "path-x" ? 128 : 32;
    CHECK(source->read(Split::kTest, 3).ids[0].size() == static_cast<size_t>(side * side));
    CHECK(source->info().origin == "generated");
    CHECK(open(other.path(), small)->info().sha256 == source->info().sha256);
    Json seeded = small;
    seeded["generator_seed"] = 1;
    CHECK(open(cache.path(), seeded)->info().sha256 != source->info().sha256);
    const DatasetDescriptor& dataset = find_dataset(task);
    CHECK(dataset.picture(source->read(Split::kTrain, 0), source->info()).width == side);
    CHECK_THAT(dataset.show(source->read(Split::kTrain, 0), source->info()), Contains("label"));
  }
}

TEST_CASE("curves of fewer paddles: the task's own count changes nothing, three leave more of the image black") {
  const Folder cache;
  const auto drawn = [&](const std::string& task, const Json& more) {
    Json given{{"train_examples", 200}, {"dev_examples", 1}, {"test_examples", 1}};
    given.update(more);
    DataLocation location;
    location.cache = cache.path();
    return find_dataset(task).open(options_of(task, given), location, {});
  };
  const auto lit = [](const DataSource& source) {
    int64_t count = 0;
    for (int64_t i = 0; i < source.size(Split::kTrain); ++i)
      for (const uint8_t level : source.read(Split::kTrain, i).ids[0].as<uint8_t>()) count += level > 0 ? 1 : 0;
    return count;
  };
  const auto own = drawn("pathfinder32", Json::object()), three = drawn("pathfinder32", {{"contour_length", 3}});
  CHECK(drawn("pathfinder32", {{"contour_length", 14}})->info().sha256 == own->info().sha256);
  CHECK(drawn("pathfinder32-easy", {{"contour_length", 6}})->info().sha256 ==
        drawn("pathfinder32-easy", Json::object())->info().sha256);
  CHECK(three->info().details["generator"]["contour_lengths"] == Json({3}));
  // Two curves of 3 paddles and at most 20 distractors of 1, instead of 14 and 5 of 4: 26 paddles for 48.
  CHECK(lit(*three) < 3 * lit(*own) / 4);
  // One paddle is the least: its distractors have one, too.
  CHECK(drawn("pathfinder32", {{"contour_length", 1}})->size(Split::kTrain) == 200);
  const std::vector<std::string>& drawing = find_dataset("pathfinder32").generator_options;
  CHECK(std::count(drawing.begin(), drawing.end(), "contour_length") == 1);
  CHECK(std::count(drawing.begin(), drawing.end(), "split") == 0);
}

TEST_CASE("genuine images come through the adapter") {
  const char* root = std::getenv("XFORMER_TEST_DATA");
  if (root == nullptr) {
    WARN("skipped: XFORMER_TEST_DATA is not set");
    SUCCEED("skipped");
    return;
  }
  const Folder cache;
  DataLocation location;
  location.folder = Path(root) / "pathfinder/original_script_output";
  location.cache = cache.path();
  const auto source = find_dataset("pathfinder32-mixed").open(options_of("pathfinder32-mixed"), location, {});
  CHECK(source->size(Split::kTrain) == 480);
  CHECK(source->info().dropped.empty());
}

}  // namespace xformer::pathfinder_adapter_test
