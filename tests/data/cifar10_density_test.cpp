// The bytes of CIFAR-10's images as a sequence to be predicted: their order, splits, and what stands in front.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <set>

#include "cifar_batches.h"
#include "core/error.h"
#include "data/adapter_place.h"
#include "data/batches/batcher.h"
#include "data/check.h"

namespace xformer::cifar10_density_test {

using namespace data;
using adapter_place::options_of;
using adapter_place::Place;

namespace {

void put_batches(const Path& folder, size_t images) {
  for (int i = 1; i <= 5; ++i)
    scratch::put(folder / fmt::format("data_batch_{}.bin", i),
                 scratch::binary_batch(scratch::cifar_images(images, static_cast<size_t>(i) * 100)));
  scratch::put(folder / "test_batch.bin", scratch::binary_batch(scratch::cifar_images(3)));
}

// Red, green and blue of each pixel, from the planes of a record.
std::vector<int64_t> interleaved(const scratch::CifarImage& image) {
  std::vector<int64_t> result;
  for (size_t pixel = 0; pixel < 1024; ++pixel)
    for (size_t colour = 0; colour < 3; ++colour)
      result.push_back(static_cast<uint8_t>(image.colours[colour * 1024 + pixel]));
  return result;
}

}  // namespace

TEST_CASE("an image is its bytes, colours of a pixel side by side, each behind the one before it", "[density]") {
  const Place place;
  put_batches(place.folder.path(), 10);
  const auto source = place.open("cifar10-density");
  const DataInfo& info = source->info();
  CHECK((info.shape.max_len == 3072 && info.shape.vocabulary == 257 && info.shape.target.classes() == 256));
  CHECK((source->size(Split::kTrain) == 48 && source->size(Split::kDev) == 2 && source->size(Split::kTest) == 3));
  HostBatch batch;
  fill_batch(*source, Split::kTest, {{2, 0}, 3072}, 2, batch);
  const std::vector<int64_t>& ids = batch.whole("tokens");
  const std::vector<int64_t>& labels = batch.whole("label");
  const auto images = scratch::cifar_images(3);
  CHECK(std::vector<int64_t>(labels.begin(), labels.begin() + 3072) == interleaved(images[2]));
  CHECK(std::vector<int64_t>(labels.begin() + 3072, labels.end()) == interleaved(images[0]));
  CHECK((ids[0] == 0 && ids[3072] == 0));
  for (size_t i = 1; i < 3072; ++i) REQUIRE(ids[i] == labels[i - 1] + 1);
  CHECK(std::count(batch.key_valid.begin(), batch.key_valid.end(), 1) == 2 * 3072);  // no byte is padding
}

TEST_CASE("training images and dev images of the density are others, by the split's seed alone", "[density]") {
  const Place place;
  put_batches(place.folder.path(), 10);
  const auto all = [&](const Json& options) {
    std::vector<std::vector<int32_t>> images;
    const auto source = place.open("cifar10-density", options);
    for (const Split split : {Split::kDev, Split::kTrain})
      for (int64_t i = 0; i < source->size(split); ++i) {
        const auto labels = source->read(split, i).further[0].as<int32_t>();
        images.emplace_back(labels.begin(), labels.end());
      }
    return images;
  };
  const auto images = all(Json::object()), again = all(Json::object()), other = all({{"split_seed", 1}});
  CHECK(images == again);
  CHECK(images != other);
  const auto contents = [](const std::vector<std::vector<int32_t>>& of) {
    return std::multiset<std::vector<int32_t>>(of.begin(), of.end());
  };
  CHECK((contents(images) == contents(other) && images.size() == 50));
  const CheckReport report = find_dataset("cifar10-density").check(options_of("cifar10-density"), place.location(), {});
  CHECK(report.splits["train"]["examples"] == 48);
  CHECK_FALSE(report.splits["train"].contains("labels"));
  const auto source = place.open("cifar10-density");
  const readers::Image picture = find_dataset("cifar10-density").picture(source->read(Split::kTest, 1), source->info());
  CHECK((picture.channels == 3 && picture.pixels.size() == 3072));
  CHECK(picture.pixels[1] == static_cast<uint8_t>(scratch::cifar_images(3)[1].colours[1024]));
}

}  // namespace xformer::cifar10_density_test
