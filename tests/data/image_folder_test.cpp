// Trees of images: classes, what is left out, refusals, patches, augmentation as a pure function, mixtures.
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "adapter_place.h"
#include "core/error.h"
#include "data/check.h"
#include "data/images/image_source.h"
#include "image_tree.h"

namespace xformer::image_folder_test {

using namespace data;
using adapter_place::options_of;
using adapter_place::Place;
using Catch::Matchers::Contains;

namespace {

const Json kSmall{{"side", 16}, {"patch", 8}};

std::unique_ptr<DataSource> open(const Place& place, const Json& more = Json::object()) {
  Json options = kSmall;
  options.update(more);
  return place.open("image-folder", options);
}

BatchRows batch_of(const DataSource& source, uint64_t seed, int64_t epoch, int64_t index, int64_t repeats = 1) {
  const ExampleOrder order(
      source, Split::kTrain,
      {.batch = 4, .padded_len = 4, .seed = seed, .batching = {.repeats = repeats}, .augment = true});
  return order.batch(epoch, index);
}

HostBatch filled(const DataSource& source, const BatchRows& rows) {
  HostBatch batch;
  fill_batch(source, Split::kTrain, rows, 4, batch);
  return batch;
}

}  // namespace

TEST_CASE("classes are the sorted folders, val is dev and test, and places are patches") {
  Place place;
  image_tree::make(place.folder.path(), {"n02", "n01", "n10"}, 3, 2);
  scratch::put(place.folder / "train/n01/notes.txt", "none");
  const auto source = open(place);
  const DataInfo& info = source->info();
  CHECK(info.details["classes"] == Json({"n01", "n02", "n10"}));
  CHECK((info.sizes == std::array<int64_t, 3>{9, 6, 6} && info.details["other_files"] == 1));
  CHECK((info.shape.max_len == 4 && info.shape.width == 192 && info.shape.target.classes() == 3 &&
         info.shape.target.has("share")));
  CHECK_FALSE(info.shape.target.parameters.contains("top5"));
  CHECK(source->read(Split::kTest, 4).label == 2);
  // train/n01 was made second: its pictures are numbers 3 to 5. 20 pixels become 18, and 16 are cut from their middle.
  const Example example = source->read(Split::kTrain, 0);
  REQUIRE(example.values.size() == 4 * 192);
  const readers::Image image = image_of(example.values, {.side = 16, .patch = 8});
  const size_t pixel = (9 * 16 + 3) * 3 + 1;  // row 9, column 3, green: patch 2, row 1 and column 3 of it
  const float value = example.values[2 * 192 + 64 + 1 * 8 + 3];
  CHECK(image.pixels[pixel] == std::lround(255 * (value * 0.224 + 0.456)));
  // An archive's own folder, inside the one that it was unpacked into.
  Place nested;
  image_tree::make(nested.folder / "archive" / "tree-160", {"a", "b"}, 2, 1);
  CHECK(open(nested)->size(Split::kTrain) == 4);
}

TEST_CASE("a holdout is a tenth of the training images") {
  Place place;
  image_tree::make(place.folder.path(), {"a", "b"}, 20, 1);
  const auto source = open(place, {{"dev", "holdout"}});
  CHECK((source->info().sizes == std::array<int64_t, 3>{36, 4, 2}));
}

TEST_CASE("images that do not decode are left out and counted, up to the limit") {
  Place place;
  image_tree::make(place.folder.path(), {"a", "b"}, 3, 1);
  scratch::put(place.folder / "train/a/0.png", "no image");
  const std::string cut = scratch::get(place.folder / "train/b/1.png");
  scratch::put(place.folder / "train/b/1.png", cut.substr(0, cut.size() / 2));
  const auto source = open(place);
  CHECK(source->size(Split::kTrain) == 4);
  REQUIRE(source->info().dropped.size() == 1);
  CHECK((source->info().dropped[0].count == 2 && source->info().dropped[0].split == Split::kTrain));
  CHECK_THAT(source->info().details["undecodable"][0].get<std::string>(), Contains("train/a/0.png"));
  Place strict;
  image_tree::make(strict.folder.path(), {"a", "b"}, 3, 1);
  scratch::put(strict.folder / "val/a/0.png", "no image");
  CHECK_THAT(scratch::message_of<DataError>([&] {
               (void)open(strict, {{"max_undecodable", 0}});
             }),
             Contains("max_undecodable") && Contains("val/a/0.png"));
  CHECK(strict.cache_is_empty());
}

TEST_CASE("a split of which nothing decodes is refused, and leaves no cache") {
  for (const char* split : {"train", "val"}) {
    Place place;
    image_tree::make(place.folder.path(), {"a", "b"}, 1, 1);
    for (const char* name : {"a", "b"}) scratch::put(place.folder.path() / split / name / "0.png", "no image");
    CHECK_THAT(scratch::message_of<DataError>([&] { (void)open(place); }),
               Contains("none of the 2 images") && Contains("a/0.png"));
    CHECK(place.cache_is_empty());
  }
}

TEST_CASE("a tree that is none is refused with what is wrong") {
  const auto refuses = [](const Place& place, const std::string& words) {
    CHECK_THAT(scratch::message_of<DataError>([&] { (void)open(place); }), Contains(words));
    CHECK(place.cache_is_empty());
  };
  Place empty;
  refuses(empty, "train/<class>/");
  Place extra;
  image_tree::make(extra.folder.path(), {"cat", "dog"}, 1, 1);
  std::filesystem::create_directories(extra.folder / "val/cats");
  refuses(extra, "a class that train/ lacks");
  Place bare;
  image_tree::make(bare.folder.path(), {"cat", "dog"}, 1, 1);
  std::filesystem::create_directories(bare.folder / "train/emu");
  refuses(bare, "no image");
  Place one;
  image_tree::make(one.folder.path(), {"cat"}, 1, 1);
  refuses(one, "two classes");
  Place other;
  image_tree::make(other.folder.path(), {"cat", "dog"}, 1, 1);
  CHECK_THAT(scratch::message_of<DataError>([&] { (void)other.open("imagenet"); }),
             Contains("not ImageNet-1k") && Contains("image-folder"));
  CHECK_THROWS_AS(find_dataset("image-folder").check_options(options_of("image-folder", {{"patch", 15}})), UserError);
}

TEST_CASE("a file that changed behind the cache fails the check") {
  Place place;
  image_tree::make(place.folder.path(), {"a", "b"}, 2, 1);
  const auto check = [&] {
    return find_dataset("image-folder").check(options_of("image-folder", kSmall), place.location(), {});
  };
  CHECK(check().passed);
  scratch::put(place.folder / "train/a/1.png", image_tree::noise_png(99));
  const CheckReport report = check();
  CHECK_FALSE(report.passed);
  CHECK_THAT(report.json().dump(), Contains("train/a/1.png"));
}

TEST_CASE("augmentation and mixtures are functions of seed, epoch and index") {
  Place place;
  image_tree::make(place.folder.path(), {"a", "b"}, 6, 1);
  const auto one = open(place), two = open(place);
  const HostBatch first = filled(*one, batch_of(*one, 5, 2, 1));
  (void)filled(*two, batch_of(*two, 5, 0, 0));
  const HostBatch again = filled(*two, batch_of(*two, 5, 2, 1));
  CHECK((first.numbers("values") == again.numbers("values") && first.numbers("share") == again.numbers("share") &&
         first.whole("second_label") == again.whole("second_label")));
  CHECK(filled(*one, batch_of(*one, 6, 2, 1)).numbers("values") != first.numbers("values"));
  CHECK(filled(*one, batch_of(*one, 5, 3, 1)).numbers("values") != first.numbers("values"));
}

TEST_CASE("evaluation neither augments nor mixes") {
  Place place;
  image_tree::make(place.folder.path(), {"a", "b"}, 4, 1);
  const auto source = open(place);
  HostBatch batch;
  fill_batch(*source, Split::kTrain, {{0, 1}, 4}, 4, batch);
  CHECK(batch.numbers("share") == std::vector<float>(4, 1.0F));
  const Example example = source->read(Split::kTrain, 1);
  CHECK(std::equal(example.values.begin(), example.values.end(), batch.numbers("values").begin() + 4 * 192));
}

TEST_CASE("a mixture is a weighted sum or a box, and its labels have the same shares") {
  Place place;
  image_tree::make(place.folder.path(), {"a", "b"}, 6, 1);
  const Json still{{"random_crop", false}, {"rand_augment", false}, {"erasing", 0.0}};
  for (const bool boxes : {false, true}) {
    Json options = still;
    options.update(boxes ? Json{{"mixup", 0.0}} : Json{{"cutmix", 0.0}});
    const auto source = open(place, options);
    std::set<float> shares;
    for (int64_t epoch = 0; epoch < 8; ++epoch) {
      const BatchRows rows = batch_of(*source, 1, epoch, 0);
      const HostBatch batch = filled(*source, rows);
      const double share = batch.numbers("share")[0];
      shares.insert(batch.numbers("share")[0]);
      CHECK((share >= 0 && share <= 1));
      const Example kept = source->read(Split::kTrain, rows.rows[0]);
      const std::vector<float> own(kept.values.begin(), kept.values.end());
      const Example partner = source->read(Split::kTrain, rows.rows[3]);
      CHECK((batch.whole("label")[0] == kept.label && batch.whole("second_label")[0] == partner.label));
      double worst = 0, from_partner = 0;
      for (size_t i = 0; i < own.size(); ++i) {
        const double value = batch.numbers("values")[i];
        if (boxes) {
          const bool other = value != own[i];
          worst = std::max(worst, other ? std::abs(value - partner.values[i]) : 0.0);
          from_partner += other ? 1 : 0;
        } else {
          worst = std::max(worst, std::abs(value - (share * own[i] + (1 - share) * partner.values[i])));
        }
      }
      CHECK(worst < 1e-6);
      // Some pixels of noise are equal by chance.
      if (boxes) CHECK(from_partner / static_cast<double>(own.size()) == Approx(1 - share).margin(0.02));
    }
    CHECK(shares.size() > 4);
  }
}

TEST_CASE("the genuine sample has its classes and sizes") {
  const char* root = std::getenv("XFORMER_TEST_DATA");
  if (root == nullptr) {
    WARN("skipped: XFORMER_TEST_DATA is not set");
    SUCCEED("skipped");
    return;
  }
  const scratch::Folder cache;
  DataLocation location;
  location.folder = Path(root) / "imagenet_sample" / "imagenette_224";
  location.cache = cache.path();
  const auto source = find_dataset("image-folder").open(options_of("image-folder"), location, {});
  CHECK((source->info().sizes == std::array<int64_t, 3>{309, 159, 159}));
  CHECK((source->info().details["classes"].size() == 10 && source->info().dropped.empty() &&
         source->info().shape.target.parameters.contains("top5")));
  CHECK(source->info().details["classes"][0] == "n01440764");
}

}  // namespace xformer::image_folder_test
