// Images of a folder as bytes to be predicted: their order, sizes, splits, and what is refused.
#include <catch2/catch.hpp>
#include <set>

#include "core/error.h"
#include "data/adapter_place.h"
#include "data/check.h"
#include "image_tree.h"

namespace xformer::image_density_test {

using namespace data;
using adapter_place::options_of;
using adapter_place::Place;
using Catch::Matchers::Contains;

namespace {

void put_images(const Path& folder, uint64_t first, int64_t count, int64_t side) {
  std::filesystem::create_directories(folder);
  for (int64_t i = 0; i < count; ++i)
    scratch::put(folder / fmt::format("{:03}.png", i), image_tree::noise_png(first + static_cast<uint64_t>(i), side));
}

std::vector<int32_t> labels_of(const DataSource& source, Split split, int64_t index) {
  const Example example = source.read(split, index);
  const std::span<const int32_t> labels = example.further[0].as<int32_t>();
  return {labels.begin(), labels.end()};
}

std::vector<int32_t> pixels_of(uint64_t number, int64_t side) {
  const std::string png = image_tree::noise_png(number, side);
  const readers::Image image = readers::decode_png(std::as_bytes(std::span(png)), 3, "made");
  return {image.pixels.begin(), image.pixels.end()};
}

std::string message(const Place& place, const std::string& task, const Json& options = Json::object()) {
  try {
    (void)place.open(task, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("ImageNet-64's validation is the test, and part of its training images is dev", "[image-density]") {
  const Place place;
  put_images(place.folder / "train_64x64", 0, 30, 64);
  put_images(place.folder / "valid_64x64", 100, 3, 64);
  const auto source = place.open("imagenet64-density");
  const DataInfo& info = source->info();
  CHECK((info.shape.max_len == 12288 && info.shape.vocabulary == 257 && info.shape.target.classes() == 256));
  CHECK((source->size(Split::kTrain) == 29 && source->size(Split::kDev) == 1 && source->size(Split::kTest) == 3));
  CHECK(labels_of(*source, Split::kTest, 1) == pixels_of(101, 64));
  const Example example = source->read(Split::kTest, 1);
  const auto ids = example.ids[0].as<uint16_t>();
  const std::vector<int32_t> labels = labels_of(*source, Split::kTest, 1);
  CHECK(ids[0] == 0);
  for (size_t i = 1; i < labels.size(); ++i) REQUIRE(ids[i] == labels[i - 1] + 1);
  std::set<std::vector<int32_t>> seen;
  for (int64_t i = 0; i < 29; ++i) seen.insert(labels_of(*source, Split::kTrain, i));
  seen.insert(labels_of(*source, Split::kDev, 0));
  std::set<std::vector<int32_t>> meant;
  for (uint64_t i = 0; i < 30; ++i) meant.insert(pixels_of(i, 64));
  CHECK(seen == meant);
  const readers::Image picture = find_dataset("imagenet64-density").picture(example, info);
  CHECK((picture.width == 64 && picture.height == 64 && picture.channels == 3));
  const CheckReport report =
      find_dataset("imagenet64-density").check(options_of("imagenet64-density"), place.location(), {});
  CHECK_THAT(report.text(), Contains("33 images") && Contains("published"));
  put_images(place.folder / "train_64x64", 0, 1, 32);
  CHECK_THAT(message(place, "imagenet64-density"),
             Contains("000.png: expected an image of 64 by 64 pixels, found 32 by 32"));
}

TEST_CASE("any image's middle square is made as wide as asked for", "[image-density]") {
  const Place place;
  put_images(place.folder / "a/b", 0, 10, 8);
  const auto source = place.open("image-density", {{"side", 8}, {"dev_share", 0.2}, {"test_share", 0.3}});
  CHECK((source->size(Split::kTrain) == 5 && source->size(Split::kDev) == 2 && source->size(Split::kTest) == 3));
  CHECK(source->info().shape.max_len == 192);
  // One colour stays it, whatever its size was.
  const Place even;
  std::filesystem::create_directories(even.folder.path());
  for (int i = 0; i < 5; ++i) {
    readers::Image image{60, 21, 3, {}};
    for (int64_t p = 0; p < image.width * image.height; ++p)  // the middle square is of another colour than its sides
      image.pixels.insert(image.pixels.end(), 3, static_cast<uint8_t>(p % 60 < 8 || p % 60 >= 52 ? 200 : 40 + i));
    scratch::put(even.folder / fmt::format("{}.png", i), readers::encode_png(image));
  }
  const auto made = even.open("image-density", {{"side", 4}, {"dev_share", 0.2}, {"test_share", 0.2}});
  for (const Split split : kAllSplits)
    for (int64_t i = 0; i < made->size(split); ++i) {
      const std::vector<int32_t> labels = labels_of(*made, split, i);
      REQUIRE(labels.size() == 48);
      for (const int32_t label : labels) REQUIRE((label == labels[0] && label >= 40 && label < 45));
    }
}

TEST_CASE("images that are moved between splits are packed anew, other files are none of theirs", "[image-density]") {
  const Place place;
  put_images(place.folder / "train", 0, 6, 4);
  put_images(place.folder / "valid", 10, 2, 4);
  put_images(place.folder / "test", 20, 2, 4);
  const auto sizes = [&] { return place.open("image-density", {{"side", 4}})->info().sizes; };
  CHECK((sizes() == std::array<int64_t, 3>{6, 2, 2}));
  scratch::put(place.folder / "train" / "notes.txt", "by whom");
  CHECK((sizes() == std::array<int64_t, 3>{6, 2, 2}));
  CHECK(scratch::names_in(place.cache / "image-density").size() == 2);  // one cache, and the lock
  std::filesystem::rename(place.folder / "train" / "000.png", place.folder / "test" / "900.png");
  CHECK((sizes() == std::array<int64_t, 3>{5, 2, 3}));
}

TEST_CASE("a folder without images and an image that does not decode are one clear error", "[image-density]") {
  const Place place;
  CHECK_THAT(message(place, "image-density"), Contains("no training image") && Contains("the folder is empty"));
  put_images(place.folder.path(), 0, 1, 8);
  CHECK_THAT(message(place, "image-density"), Contains("1 training images, of which 1 are to be dev and 1 test"));
  put_images(place.folder.path(), 0, 4, 8);
  scratch::put(place.folder / "002.png", "no picture");
  CHECK_THAT(message(place, "image-density"), Contains("002.png"));
  CHECK(place.cache_is_empty());
  std::filesystem::create_directories(place.folder / "test");
  CHECK_THAT(message(place, "image-density"), Contains("no training image"));
}

}  // namespace xformer::image_density_test
