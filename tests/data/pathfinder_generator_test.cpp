// Pathfinder's images: what they are drawn with, and what must hold of each.
#include "data/pathfinder/pathfinder_generator.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <map>

#include "data/pathfinder/pathfinder_files.h"

namespace xformer::pathfinder_test {

using namespace data;

namespace {

std::vector<uint8_t> pixels(const PathfinderSettings& settings, uint64_t index, uint64_t seed = 1) {
  Stream numbers(seed, index);
  return draw_pathfinder(settings, numbers).pixels;
}

double distance(Place one, Place other) {
  return std::hypot(static_cast<double>(one.row - other.row), static_cast<double>(one.column - other.column));
}

struct Look {
  double mean = 0, lit = 0;
};
Look look_of(const std::vector<std::vector<uint8_t>>& images) {
  Look look;
  double count = 0;
  for (const auto& image : images)
    for (const uint8_t level : image) {
      look.mean += level;
      look.lit += level > 0 ? 1 : 0;
      ++count;
    }
  return {look.mean / count, look.lit / count};
}

}  // namespace

TEST_CASE("discs and steps are those of lra-recipe 11.2") {
  CHECK(disc(0).size() == 1);
  CHECK(disc(1).size() == 5);
  CHECK(disc(1.5).size() == 9);
  CHECK(disc(3).size() == 29);
  const Place right = moved({5, 5}, 0, 2.5), down = moved({5, 5}, std::acos(0.0), 2);
  CHECK((right.row == 5 && right.column == 8));  // rounded up
  CHECK((down.row == 7 && down.column == 5));
}

TEST_CASE("a reduction keeps what is constant, and the sum of what is small") {
  Raster even(41);
  std::fill(even.values().begin(), even.values().end(), 1.0F);
  const Raster less = reduced(even, 21);
  for (const float value : less.values()) CHECK(value == Approx(1));
  Raster dot(41);
  for (Place at{18, 0}; at.row < 23; ++at.row)
    for (at.column = 18; at.column < 23; ++at.column) dot[at] = 1;
  const Raster small = reduced(dot, 21);
  double sum = 0;
  for (const float value : small.values()) sum += static_cast<double>(value);
  CHECK(sum == Approx(25 * (21.0 / 41) * (21.0 / 41)).epsilon(0.15));  // its negative lobes are cut off
  CHECK(small[{10, 10}] == Approx(1).epsilon(0.15));
}

TEST_CASE("a segment is a line from the middle with a margin around it") {
  for (const double direction : {0.0, 0.7, 2.0, -1.2, 3.0}) {
    CAPTURE(direction);
    const Segment segment = draw_segment({5, 1.5, 2}, direction);
    const int64_t reach = segment.line.side() / 2;
    CHECK(reach == 5 + 2 + 2);
    CHECK(segment.line[{reach, reach}] > 0.5F);
    const auto along = [&](double steps) {
      return Place{reach + std::lround(steps * std::sin(direction)), reach + std::lround(steps * std::cos(direction))};
    };
    CHECK(segment.line[along(4)] > 0.5F);
    CHECK(segment.line[along(-3)] < 0.1F);
    CHECK(segment.line[along(8)] < 0.1F);
    for (size_t i = 0; i < segment.line.values().size(); ++i)
      CHECK(segment.mask.values()[i] >= segment.line.values()[i] - 0.1F);
  }
}

TEST_CASE("a paddle has the grey levels of the published script's") {
  // curv_contour_length_14/imgs/0/sample_2.png of a run of it, rows 3 and 4, columns 2 to 4, where a disc is 239: a
  // paddle of a curve whose direction ends in the fine pixel one up and four to the right.
  const Segment segment = draw_segment({2, 0.5, 1}, -29 * std::acos(-1.0) / 180);
  const std::vector<std::vector<double>> levels{{0, 91, 114}, {159, 146, 101}};
  for (int64_t row = 0; row < 2; ++row)
    for (int64_t column = 0; column < 3; ++column) {
      CAPTURE(row, column);
      const double level = 239 * 1.5 * static_cast<double>(segment.line[{3 + row, 4 + column}]);
      CHECK(std::abs(level - levels[static_cast<size_t>(row)][static_cast<size_t>(column)]) < 1.5);
    }
}

TEST_CASE("the class says whose ends the discs mark, and both classes come equally often") {
  for (const auto& [side, contour, count] : {std::tuple(32, 14, 600), {32, 9, 200}, {32, 6, 200}, {128, 14, 60}}) {
    CAPTURE(side, contour);
    const PathfinderSettings settings = pathfinder_settings(side, contour);
    std::map<int64_t, int64_t> labels;
    for (uint64_t i = 0; i < static_cast<uint64_t>(count); ++i) {
      Stream numbers(7, i);
      const PathfinderImage image = draw_pathfinder(settings, numbers);
      ++labels[image.label];
      REQUIRE(static_cast<int64_t>(image.pixels.size()) == settings.side * settings.side);
      const auto [least, most] = std::minmax_element(image.pixels.begin(), image.pixels.end());
      CHECK((*least == 0 && *most == 255));
      CHECK((image.marked_curves[0] == image.marked_curves[1]) == (image.label == 1));
      const auto end = [&](size_t which) { return image.ends[static_cast<size_t>(image.marked_curves[which])][which]; };
      CHECK(distance(image.markers[0], end(0)) == 0);
      CHECK(distance(image.markers[1], end(1)) == 0);
      // The two curves begin at the seed distance, up to the rounding of places.
      CHECK(std::abs(distance(image.ends[0][0], image.ends[1][0]) - static_cast<double>(settings.seed_distance)) < 1.5);
      // Both discs are there.
      const auto reach = static_cast<int64_t>(settings.marker_radius) - 1;
      for (const Place marker : image.markers)
        for (int64_t row = -reach; row <= reach; ++row) {
          const Place at{marker.row + row, marker.column};
          if (at.row < 0 || at.row >= settings.side) continue;
          CHECK(image.pixels[static_cast<size_t>(at.row * settings.side + at.column)] >= 127);
        }
    }
    const double share = static_cast<double>(labels[1]) / count;
    CHECK(std::abs(share - 0.5) < 4 * 0.5 / std::sqrt(static_cast<double>(count)));
  }
}

TEST_CASE("an image depends on seed and index alone") {
  const PathfinderSettings settings = pathfinder_settings(32, 14);
  CHECK(pixels(settings, 3) == pixels(settings, 3));
  CHECK(pixels(settings, 3) != pixels(settings, 4));
  CHECK(pixels(settings, 3, 1) != pixels(settings, 3, 2));
}

TEST_CASE("drawn images have the grey and the share of lit pixels of genuine ones") {
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
    std::vector<std::vector<uint8_t>> genuine, drawn;
    int64_t empty = 0;
    for (const PathfinderEntry& entry : list_pathfinder_images(find_pathfinder_sets(folder, 32, {name})[0], empty))
      genuine.push_back(read_pathfinder_image(entry.image, 32));
    REQUIRE(genuine.size() == 200);
    const PathfinderSettings settings = pathfinder_settings(32, contour);
    for (uint64_t i = 0; i < 2000; ++i) drawn.push_back(pixels(settings, i));
    const Look meant = look_of(genuine), got = look_of(drawn);
    CAPTURE(meant.mean, got.mean, meant.lit, got.lit);
    CHECK(got.mean == Approx(meant.mean).epsilon(0.05));
    CHECK(got.lit == Approx(meant.lit).epsilon(0.05));
  }
}

}  // namespace xformer::pathfinder_test
