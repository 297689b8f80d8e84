// Pixels as sequences of numbers: MNIST's files and any other IDX set, orders of the pixels, CIFAR-10 in colour; and
// what damaged files get told.
#include <catch2/catch.hpp>
#include <numeric>
#include <set>

#include "cifar_batches.h"
#include "core/error.h"
#include "core/hash.h"
#include "data/adapter_place.h"
#include "data/batches/batcher.h"
#include "data/check.h"
#include "data/images/pixel_numbers.h"
#include "gzip_maker.h"
#include "idx_maker.h"

namespace xformer::pixel_sequences_test {

using namespace data;
using adapter_place::options_of;
using adapter_place::Place;
using Catch::Matchers::Contains;
using scratch::idx_file;

namespace {

// Image i has the bytes i, i + 1, ... and the class i mod `classes`.
void put_set(const Path& folder, int64_t train, int64_t test, int64_t side, int64_t classes = 10,
             const std::string& ending = "") {
  for (const auto& [name, count] : {std::pair{"train", train}, std::pair{"t10k", test}}) {
    std::string pixels, labels;
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < side * side; ++j) pixels += static_cast<char>(i + j);
      labels += static_cast<char>(i % classes);
    }
    const auto packed = [&](const std::string& content) { return ending.empty() ? content : scratch::gzip(content); };
    scratch::put(folder / fmt::format("{}-images-idx3-ubyte{}", name, ending),
                 packed(idx_file({count, side, side}, pixels)));
    scratch::put(folder / fmt::format("{}-labels-idx1-ubyte{}", name, ending), packed(idx_file({count}, labels)));
  }
}

std::string refused(const Place& place, const std::string& task) {
  return scratch::message_of<DataError>([&] { (void)place.open(task); });
}

}  // namespace

TEST_CASE("smnist: pixels row by row as numbers from 0 to 1, a tenth of train as dev", "[smnist]") {
  for (const std::string ending : {"", ".gz"}) {
    const Place place;
    put_set(place.folder.path(), 30, 7, 28, 10, ending);
    const auto source = place.open("smnist");
    const DataInfo& info = source->info();
    CHECK((info.shape.max_len == 784 && info.shape.width == 1 && info.shape.side == 28 && info.shape.vocabulary == 0));
    CHECK(info.shape == find_dataset("smnist").shape(options_of("smnist")));
    CHECK((source->size(Split::kTrain) == 27 && source->size(Split::kDev) == 3 && source->size(Split::kTest) == 7));
    HostBatch batch;
    fill_batch(*source, Split::kTest, {{4}, 784}, 1, batch);
    CHECK(batch.whole("label")[0] == 4);
    for (size_t i = 0; i < 784; ++i) REQUIRE(batch.numbers("values")[i] == static_cast<float>((4 + i) % 256) / 255);
    std::multiset<int64_t> labels;
    std::set<float> firsts;
    for (const Split split : {Split::kTrain, Split::kDev})
      for (int64_t i = 0; i < source->size(split); ++i) {
        const Example example = source->read(split, i);
        labels.insert(example.label);
        firsts.insert(example.values[0]);
      }
    CHECK(firsts.size() == 30);
    for (int64_t label = 0; label < 10; ++label) CHECK(labels.count(label) == 3);
  }
}

TEST_CASE("orders of pixels are those of the papers, and every pixel has one place", "[smnist]") {
  const std::vector<int64_t> reversed = pixel_order("bitreverse", 784);
  CHECK(std::vector<int64_t>(reversed.begin(), reversed.begin() + 8) ==
        std::vector<int64_t>{0, 512, 256, 768, 128, 640, 384, 64});
  // Of numpy.random.RandomState(92916).permutation(784), NumPy 2: its first numbers, and a hash of all, joined by
  // blanks.
  const std::vector<int64_t> drawn = pixel_order("random-92916", 784);
  CHECK(std::vector<int64_t>(drawn.begin(), drawn.begin() + 8) ==
        std::vector<int64_t>{319, 576, 323, 107, 355, 716, 197, 20});
  CHECK(sha256(fmt::format("{}", fmt::join(drawn, " "))) ==
        "64a17fd93aaab6515372a6ec4c30078ac0a05f667632cbd41a2d0f06e3f49569");
  for (const auto& order : {reversed, drawn}) {
    const std::set<int64_t> once(order.begin(), order.end());
    CHECK((order.size() == 784 && once.size() == 784 && *once.begin() == 0 && *once.rbegin() == 783));
  }
  CHECK(pixel_order("none", 784).empty());
  CHECK(pixel_order("bitreverse", 1) == std::vector<int64_t>{0});
}

TEST_CASE("psmnist is smnist in another order of places, told in the record and undone to be shown", "[smnist]") {
  const Place place;
  put_set(place.folder.path(), 20, 5, 28);
  const auto plain = place.open("smnist"), permuted = place.open("psmnist"),
             older = place.open("psmnist", {{"permutation", "random-92916"}});
  CHECK(find_dataset("psmnist").shape(options_of("psmnist")) == permuted->info().shape);
  CHECK(permuted->info().shape.side == 0);
  CHECK(permuted->info().details["permutation"] == "bitreverse");
  CHECK(older->info().details["permutation"] == "random-92916");
  CHECK_FALSE(plain->info().details.contains("permutation"));
  const auto check_order = [&](const DataSource& other, const std::string& name) {
    const std::vector<int64_t> order = pixel_order(name, 784);
    const Example one = plain->read(Split::kTrain, 3);
    const std::vector<float> values(one.values.begin(), one.values.end());
    const Example moved = other.read(Split::kTrain, 3);
    CHECK(one.label == moved.label);
    for (size_t i = 0; i < 784; ++i) REQUIRE(moved.values[i] == values[static_cast<size_t>(order[i])]);
  };
  check_order(*permuted, "bitreverse");
  check_order(*older, "random-92916");
  const DatasetDescriptor& task = find_dataset("psmnist");
  const std::string drawn = find_dataset("smnist").show(plain->read(Split::kTest, 1), plain->info());
  CHECK_THAT(drawn, Contains("label 1"));
  CHECK(task.show(permuted->read(Split::kTest, 1), permuted->info()) == drawn);
  CHECK(task.picture(permuted->read(Split::kTest, 1), permuted->info()).pixels[3] == 4);
  CHECK(scratch::names_in(place.cache / "smnist").size() <= 2);  // one cache for all orders, and its lock
}

TEST_CASE("any other IDX set has the classes and the size of its files", "[smnist]") {
  const Place place;
  std::filesystem::create_directories(place.folder / "Letters" / "raw");
  put_set(place.folder / "Letters" / "raw", 40, 9, 6, 4);
  const auto source = place.open("smnist/letters");
  CHECK((source->info().shape.max_len == 36 && source->info().shape.target.classes() == 4));
  CHECK(find_dataset("smnist/letters").check(options_of("smnist/letters"), place.location(), {}).passed);
  CHECK_THAT(refused(place, "smnist"), Contains("images of 28 x 28, found 6 x 6") && Contains("smnist/NAME"));
}

TEST_CASE("damaged, foreign and missing IDX files are told with their names", "[smnist]") {
  const auto with = [](const std::string& name, const std::string& content, const std::string& task = "smnist") {
    const Place place;
    put_set(place.folder.path(), 20, 5, 28);
    if (content == "gone") std::filesystem::remove(place.folder / name);
    else scratch::put(place.folder / name, content);
    const std::string message = refused(place, task);
    CHECK(place.cache_is_empty());
    return message;
  };
  const std::string images(5 * 784, 'x'), labels(5, '\1');
  const std::string images_name = "t10k-images-idx3-ubyte", labels_name = "t10k-labels-idx1-ubyte";
  CHECK_THAT(with(images_name, idx_file({5, 28, 28}, images).substr(0, 999)), Contains(images_name + " is cut off"));
  CHECK_THAT(with(images_name, ""), Contains(images_name + " is empty"));
  CHECK_THAT(with(images_name, "P5 magic"), Contains("expected an IDX file"));
  CHECK_THAT(with(images_name, idx_file({5}, labels)), Contains("expected 3 dimensions, found 1"));
  CHECK_THAT(with(images_name, idx_file({5, 14, 56}, images)), Contains("28 x 28") && Contains("14 x 56"));
  CHECK_THAT(with(labels_name, idx_file({4}, "abcd")), Contains("5 images in") && Contains("4 labels in"));
  CHECK_THAT(with(labels_name, idx_file({5}, "\1\2\xa\3\4")), Contains("image 2 is of class 10, and there are 10"));
  CHECK_THAT(with(labels_name, idx_file({5}, "\1\2\xb\3\4"), "smnist/any"), Contains("there are 10 in train"));
  CHECK_THAT(with(labels_name, "gone"), Contains("lacks t10k-labels-idx1-ubyte"));
  CHECK_THAT(with("emnist-letters-train-images-idx3-ubyte", "x"),
             Contains("each set of images in a folder of its own"));
  const Place empty;
  CHECK_THAT(refused(empty, "smnist"), Contains("no images in") && Contains("the folder is empty"));
}

TEST_CASE("scifar: three numbers of each pixel, standardised by channel", "[scifar]") {
  const Place place;
  for (int i = 1; i <= 5; ++i)
    scratch::put(place.folder / fmt::format("data_batch_{}.bin", i),
                 scratch::binary_batch(scratch::cifar_images(10, static_cast<size_t>(i) * 100)));
  scratch::put(place.folder / "test_batch.bin", scratch::binary_batch(scratch::cifar_images(3)));
  const auto source = place.open("scifar");
  const DataShape& shape = source->info().shape;
  CHECK((shape.max_len == 1024 && shape.width == 3 && shape.side == 32 && shape.channels == 3));
  CHECK(shape == find_dataset("scifar").shape(options_of("scifar")));
  CHECK((source->size(Split::kTrain) == 45 && source->size(Split::kDev) == 5 && source->size(Split::kTest) == 3));
  const auto images = scratch::cifar_images(3);
  const Example example = source->read(Split::kTest, 2);
  CHECK(example.label == images[2].label);
  const std::array<double, 3> mean{0.4914, 0.4822, 0.4465}, deviation{0.247, 0.243, 0.261};
  for (size_t pixel = 0; pixel < 1024; ++pixel)
    for (size_t colour = 0; colour < 3; ++colour) {
      const double x = static_cast<uint8_t>(images[2].colours[colour * 1024 + pixel]);
      REQUIRE(example.values[3 * pixel + colour] ==
              Approx((x / 255 - mean.at(colour)) / deviation.at(colour)).margin(1e-5));
    }
  const DatasetDescriptor& task = find_dataset("scifar");
  CHECK_THAT(task.show(example, source->info()), Contains("label 2 (bird)"));
  const readers::Image picture = task.picture(source->read(Split::kTest, 0), source->info());
  CHECK((picture.channels == 3 && picture.pixels[3] == static_cast<uint8_t>(images[0].colours[1])));
  CHECK(task.check(options_of("scifar"), place.location(), {}).passed);
  scratch::put(place.folder / "data_batch_3.bin", std::string(3072, 'x'));
  CHECK_THAT(refused(place, "scifar"), Contains("data_batch_3.bin"));
}

}  // namespace xformer::pixel_sequences_test
