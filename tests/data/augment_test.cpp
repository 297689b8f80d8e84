// Resampling against its sum written out, boxes, and what each augmentation does to pixels.
#include "data/images/augment.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "data/images/image_source.h"

namespace xformer::augment_test {

using namespace data;
using readers::Image;

namespace {

// A picture of nothing that repeats: every pixel its own levels.
Image pattern(int64_t height, int64_t width) {
  Image image{width, height, 3, {}};
  Stream numbers(7);
  for (int64_t i = 0; i < height * width * 3; ++i)
    image.pixels.push_back(static_cast<uint8_t>(numbers.next_below(256)));
  return image;
}

Image plain(int64_t side, uint8_t level) {
  return {side, side, 3, std::vector<uint8_t>(static_cast<size_t>(side * side * 3), level)};
}

int at(const Image& image, int64_t row, int64_t column, int64_t colour) {
  return image.pixels[static_cast<size_t>((row * image.width + column) * 3 + colour)];
}

int number_of(const std::string& name) {
  for (int which = 0; which < kAugmentOperations; ++which)
    if (augment_name(which) == name) return which;
  FAIL("no operation " << name);
  return -1;
}

Image done(const std::string& name, const Image& image, double strength, int sign = 1) {
  return augmented(image, number_of(name), strength, sign);
}

// Keys's cubic with a = -1/2.
double cubic(double x) {
  x = std::abs(x);
  if (x < 1) return 1.5 * x * x * x - 2.5 * x * x + 1;
  return x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
}

}  // namespace

TEST_CASE("resizing is the weighted sum of its definition, row by row and column by column") {
  Image image = pattern(23, 31);
  for (uint8_t& level : image.pixels) level = static_cast<uint8_t>(80 + level / 3);  // no sum leaves 0 .. 255
  for (const auto& [height, width] : std::vector<std::pair<int64_t, int64_t>>{{9, 12}, {40, 50}, {23, 10}}) {
    const Box box{2, 3, 20, 25};
    const Image small = resized(image, box, height, width);
    REQUIRE((small.height == height && small.width == width));
    double worst = 0;
    for (int64_t row = 0; row < height; ++row)
      for (int64_t column = 0; column < width; ++column) {
        const double scale_y = 20.0 / static_cast<double>(height), scale_x = 25.0 / static_cast<double>(width);
        const double wide_y = std::max(scale_y, 1.0), wide_x = std::max(scale_x, 1.0);
        const double y = 2 + (static_cast<double>(row) + 0.5) * scale_y,
                     x = 3 + (static_cast<double>(column) + 0.5) * scale_x;
        double sum = 0, weights = 0;
        for (int64_t r = 0; r < 23; ++r)
          for (int64_t c = 0; c < 31; ++c) {
            const double w =
                cubic((static_cast<double>(r) + 0.5 - y) / wide_y) * cubic((static_cast<double>(c) + 0.5 - x) / wide_x);
            sum += w * at(image, r, c, 1);
            weights += w;
          }
        worst = std::max(worst, std::abs(std::clamp(sum / weights, 0.0, 255.0) - at(small, row, column, 1)));
      }
    CHECK(worst < 1.6);  // both passes round
  }
  CHECK(resized(plain(9, 200), {0, 0, 9, 9}, 4, 4).pixels == plain(4, 200).pixels);
}

TEST_CASE("boxes lie inside, and have the area and the aspect that the recipe allows") {
  Stream numbers(3);
  std::set<int64_t> heights;
  for (const auto& [height, width] : std::vector<std::pair<int64_t, int64_t>>{{375, 500}, {64, 64}, {1, 1}, {10, 400}})
    for (int i = 0; i < 300; ++i) {
      const Box box = random_crop_box(height, width, numbers);
      REQUIRE((box.top >= 0 && box.left >= 0 && box.height >= 1 && box.width >= 1 && box.top + box.height <= height &&
               box.left + box.width <= width));
      const double area = static_cast<double>(box.height * box.width) / static_cast<double>(height * width);
      const double aspect = static_cast<double>(box.width) / static_cast<double>(box.height);
      if (height == 375) {
        CHECK((area > 0.078 && area <= 1 && aspect > 0.74 && aspect < 1.35));
        heights.insert(box.height);
      }
    }
  CHECK(heights.size() > 100);
}

TEST_CASE("evaluation takes the middle of the image whose shorter side was made 8/7 as long") {
  Image image = plain(256, 0);  // 224 / 0.875: not resized, so the cut is exact
  for (int64_t row = 0; row < 256; ++row)
    for (int64_t column = 0; column < 256; ++column)
      image.pixels[static_cast<size_t>((row * 256 + column) * 3)] = static_cast<uint8_t>(row);
  const Image middle = centre_crop(image, 224);
  CHECK((middle.height == 224 && middle.width == 224 && at(middle, 0, 5, 0) == 16 && at(middle, 223, 0, 0) == 239));
  // By hand: a photograph of 500 x 375 becomes 341 x 256, of which 117 columns are spared: round(58.5) is 58 in Python.
  // One of 256 x 283 becomes 256 x 283, of which 59 rows are: round(29.5) is 30.
  CHECK((crop_offset(341, 224) == 58 && crop_offset(283, 224) == 30 && crop_offset(256, 224) == 16));
  CHECK((crop_offset(225, 224) == 0 && crop_offset(227, 224) == 2 && crop_offset(224, 224) == 0));
  Image tall{256, 283, 3, {}};
  for (int64_t row = 0; row < 283; ++row)
    tall.pixels.insert(tall.pixels.end(), 256 * 3, static_cast<uint8_t>(row % 256));
  CHECK(at(centre_crop(tall, 224), 0, 0, 0) == 30);
  const Image whole = pattern(100, 300);
  const Image wide = centre_crop(whole, 64);
  // 73 x 219 pixels, of which those from 4 and 78 on: as cut from the whole.
  const Image small = resized(whole, {0, 0, 100, 300}, 73, 219);
  int64_t different = 0;
  for (int64_t row = 0; row < 64; ++row)
    for (int64_t column = 0; column < 64; ++column)
      different += at(wide, row, column, 1) == at(small, row + 4, column + 78, 1) ? 0 : 1;
  CHECK(different == 0);
  // A strip of one pixel's width is no reason to make 16 million rows of 256.
  const Image strip = centre_crop(Image{1, 65'500, 3, std::vector<uint8_t>(3 * 65'500, 7)}, 224);
  CHECK((strip.height == 224 && strip.width == 224 && at(strip, 100, 100, 2) == 7));
  CHECK((wide.height == 64 && wide.width == 64));
}

TEST_CASE("each operation does to pixels what its name says") {
  const Image image = pattern(16, 16);
  CHECK(at(done("invert", image, 9), 3, 4, 1) == 255 - at(image, 3, 4, 1));
  CHECK(at(done("posterise", image, 5), 3, 4, 1) == (at(image, 3, 4, 1) & 0xC0));  // 4 - 2 bits stay
  CHECK(done("solarise", image, 0).pixels == image.pixels);
  const int level = at(image, 3, 4, 1);
  CHECK(at(done("solarise", image, 5), 3, 4, 1) == (level < 128 ? level : 255 - level));
  CHECK(at(done("solarise_add", image, 5), 3, 4, 1) == (level < 128 ? std::min(255, level + 55) : level));
  CHECK(at(done("brightness", plain(4, 100), 10, 1), 0, 0, 0) == 190);
  CHECK(at(done("brightness", plain(4, 100), 10, -1), 0, 0, 0) == 10);
  CHECK(done("contrast", plain(4, 100), 9).pixels == plain(4, 100).pixels);
  CHECK(done("sharpness", plain(4, 100), 9).pixels == plain(4, 100).pixels);
  CHECK(done("equalise", plain(4, 100), 9).pixels == plain(4, 100).pixels);
  CHECK(done("auto_contrast", plain(4, 100), 9).pixels == plain(4, 100).pixels);
  const Image grey = done("colour", image, 10, -1);  // a tenth of the colours stays
  CHECK(std::abs(at(grey, 2, 2, 0) - at(grey, 2, 2, 2)) <= 0.1 * std::abs(at(image, 2, 2, 0) - at(image, 2, 2, 2)) + 1);
  Image low = plain(4, 50);
  low.pixels[0] = 100;
  CHECK((at(done("auto_contrast", low, 9), 0, 0, 0) == 255 && at(done("auto_contrast", low, 9), 1, 1, 0) == 0));
  // Moved by whole pixels: what comes in is the mean of ImageNet.
  const Image right = done("translate_x", pattern(20, 20), 10, -1);  // 0.45 of 20 pixels
  CHECK(
      (at(right, 4, 12, 1) == at(pattern(20, 20), 4, 3, 1) && at(right, 4, 0, 0) == 124 && at(right, 4, 8, 2) == 104));
  CHECK(done("shear_x", image, 0).pixels == image.pixels);
  const Image turned = done("rotate", plain(30, 200), 10);
  CHECK((at(turned, 15, 15, 0) == 200 && at(turned, 0, 0, 0) == 124));
  Image twice = image;
  flip(twice);
  CHECK((at(twice, 3, 0, 2) == at(image, 3, 15, 2) && twice.pixels != image.pixels));
  flip(twice);
  CHECK(twice.pixels == image.pixels);
}

TEST_CASE("RandAugment and erasing are functions of their numbers, and as frequent as they should be") {
  const Image image = pattern(24, 24);
  int changed = 0, erased = 0;
  double share = 0;
  for (uint64_t i = 0; i < 400; ++i) {
    Stream one(1, i), two(1, i);
    const Image first = rand_augment(image, one);
    REQUIRE(first.pixels == rand_augment(image, two).pixels);
    changed += first.pixels != image.pixels ? 1 : 0;
    std::vector<float> values(32 * 32 * 3, 0.0F);
    random_erasing(values, 32, 0.25, one);
    const auto noise = std::count_if(values.begin(), values.end(), [](float value) { return value != 0; });
    erased += noise > 0 ? 1 : 0;
    share += static_cast<double>(noise) / static_cast<double>(values.size());
  }
  // Two operations, each done half the time: three quarters, less what an operation leaves as it is.
  CHECK((changed > 240 && changed < 320));
  CHECK((erased > 70 && erased < 130));
  CHECK((share / erased > 0.1 && share / erased < 0.25));  // of 2 to 33 %
}

}  // namespace xformer::augment_test
