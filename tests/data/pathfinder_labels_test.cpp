// The class of an image of Pathfinder can be read off its pixels, of genuine ones and of those drawn here: whether a
// chain of so many paddles leads from one disc to the other. Nothing is known of an image but how paddles follow each
// other (lra-recipe 11.3) and what one looks like.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <set>
#include <tuple>

#include "data/pathfinder/pathfinder_files.h"
#include "data/pathfinder/pathfinder_generator.h"

namespace xformer::pathfinder_labels_test {

using namespace data;

namespace {

const double kPi = std::acos(-1.0);
constexpr int64_t kSide = 32;

struct Image {
  std::vector<uint8_t> pixels;
  int64_t label = 0;
  [[nodiscard]] int level(int64_t row, int64_t column) const {
    return pixels[static_cast<size_t>(row * kSide + column)];
  }
};

// By their lower middle pixels, which are equal and bright, with bright ones above.
std::vector<Place> discs_in(const Image& image) {
  std::vector<Place> found;
  for (int64_t row = 0; row + 1 < kSide; ++row)
    for (int64_t column = 0; column + 1 < kSide; ++column)
      if (image.level(row, column) >= 185 && image.level(row, column + 1) >= 205 &&
          image.level(row + 1, column) >= 205 && image.level(row + 1, column) == image.level(row + 1, column + 1))
        found.push_back({row + 1, column + 1});
  return found;
}

// Whether the image is nowhere darker than a paddle there, `white` the level of a line that is 1.
bool shows(const Image& image, Place at, const Raster& line, double white) {
  const int64_t reach = line.side() / 2;
  for (Place offset{-reach, 0}; offset.row <= reach; ++offset.row)
    for (offset.column = -reach; offset.column <= reach; ++offset.column) {
      const Place under{at.row + offset.row, at.column + offset.column};
      const bool inside = under.row >= 0 && under.column >= 0 && under.row < kSide && under.column < kSide;
      const auto meant = static_cast<double>(line[{reach + offset.row, reach + offset.column}]);
      if (inside && meant > 0.04 && image.level(under.row, under.column) < white * meant - 4) return false;
    }
  return true;
}

bool chain_leads(const Image& image, Place from, Place to, const PathfinderSettings& settings) {
  const SegmentShape shape{settings.paddle_length, settings.thickness, settings.margins.front()};
  const double white = image.level(from.row, from.column) * settings.snake_contrast * settings.paddle_contrast;
  const auto length = static_cast<double>(shape.length), margin = static_cast<double>(shape.margin);
  std::set<std::tuple<int64_t, int64_t, double>> ways;  // pivot and direction of the last paddle
  for (int degree = -180; degree < 180; ++degree) {
    const double direction = degree * kPi / 180;
    if (!shows(image, from, segment_toward(shape, direction).line, white)) continue;
    const Place pivot = moved(moved(from, direction, length), direction + kPi, length + margin);
    ways.emplace(pivot.row, pivot.column, direction);
  }
  bool arrived = false;
  for (int64_t i = 1; i < settings.contour_length; ++i) {
    std::set<std::tuple<int64_t, int64_t, double>> next;
    arrived = false;
    for (const auto& [row, column, before] : ways) {
      const Place pivot = moved({row, column}, before, length + 2 * margin);
      for (double angle = 0; angle < 2 * kPi; angle += 1 / (length + margin)) {
        const Place head{static_cast<int64_t>(static_cast<double>(pivot.row) + (length + margin) * std::sin(angle)),
                         static_cast<int64_t>(static_cast<double>(pivot.column) + (length + margin) * std::cos(angle))};
        if (head.row < 0 || head.column < 0 || head.row >= kSide || head.column >= kSide) continue;
        const double direction =
            std::atan2(static_cast<double>(head.row - pivot.row), static_cast<double>(head.column - pivot.column));
        if (std::cos(direction - before) < 1e-6) continue;  // a curve never turns by a right angle
        if (!shows(image, head, segment_toward(shape, direction + kPi).line, white)) continue;
        next.emplace(pivot.row, pivot.column, direction);
        arrived = arrived || (head.row == to.row && head.column == to.column);
      }
    }
    ways = std::move(next);
  }
  return arrived;
}

// The share of images whose class is right, of those in which two discs are found.
double share_right(const std::vector<Image>& images, const PathfinderSettings& settings) {
  double right = 0, found = 0;
  for (const Image& image : images) {
    const std::vector<Place> discs = discs_in(image);
    if (discs.size() != 2) continue;
    const bool one =
        chain_leads(image, discs[0], discs[1], settings) || chain_leads(image, discs[1], discs[0], settings);
    right += one == (image.label == 1) ? 1 : 0;
    ++found;
  }
  CHECK(found >= 0.97 * static_cast<double>(images.size()));
  return right / found;
}

}  // namespace

TEST_CASE("the class of a drawn image can be read off its pixels") {
  for (const int64_t contour : {6, 9, 14}) {
    CAPTURE(contour);
    const PathfinderSettings settings = pathfinder_settings(kSide, contour);
    std::vector<Image> images;
    for (uint64_t i = 0; i < 200; ++i) {
      Stream numbers(11, i);
      PathfinderImage image = draw_pathfinder(settings, numbers);
      images.push_back({std::move(image.pixels), image.label});
    }
    CHECK(share_right(images, settings) >= 0.97);
  }
}

TEST_CASE("the class of a genuine image can be read off its pixels, by the paddles that are drawn here") {
  const char* root = std::getenv("XFORMER_TEST_DATA");
  if (root == nullptr) {
    WARN("skipped: XFORMER_TEST_DATA is not set");
    SUCCEED("skipped");
    return;
  }
  const Path folder = Path(root) / "pathfinder/original_script_output";
  for (const auto& [name, contour] :
       {std::pair("curv_baseline", 6), {"curv_contour_length_9", 9}, {"curv_contour_length_14", 14}}) {
    CAPTURE(name);
    std::vector<Image> images;
    int64_t empty = 0;
    for (const PathfinderEntry& entry : list_pathfinder_images(find_pathfinder_sets(folder, kSide, {name})[0], empty))
      images.push_back({read_pathfinder_image(entry.image, kSide), entry.label});
    REQUIRE(images.size() == 200);
    CHECK(share_right(images, pathfinder_settings(kSide, contour)) >= 0.97);
  }
}

}  // namespace xformer::pathfinder_labels_test
