// Pathfinder (Linsley et al. 2018) at the settings of the Long Range Arena (lra-recipe 11): two long dashed curves
// among short ones and two discs; are the discs the ends of one curve (class 1) or of two (class 0)?
//
// An image is a function of the numbers of its stream alone.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/random.h"
#include "data/pathfinder/pathfinder_drawing.h"

namespace xformer::data {

struct PathfinderSettings {
  int64_t side = 32;
  std::vector<int64_t> margins{1};  // one of them for each image
  int64_t border = 1;               // pixels of frame that no curve enters
  int64_t paddle_length = 2;
  double thickness = 0.5, marker_radius = 1.5;
  int64_t contour_length = 14;  // paddles of each of the two curves
  int64_t seed_distance = 7;    // between the first ends of the two
  double continuity = 1;        // how much a curve keeps its direction
  int64_t distractor_length = 4, distractors = 5;
  double snake_contrast = 2, paddle_contrast = 0.75;
};

// Settings of images of 32 or 128 pixels with curves of 6, 9 or 14 paddles, or of fewer for an easier task: distractors
// a third as long, as many of them as the published count of paddles allows.
[[nodiscard]] PathfinderSettings pathfinder_settings(int64_t side, int64_t contour_length);

struct PathfinderImage {
  std::vector<uint8_t> pixels;  // [side * side], row by row
  int64_t label = 0;
  // By curve: where it begins and ends; and the middles of the discs with the curve that each belongs to.
  std::array<std::array<Place, 2>, 2> ends;
  std::array<Place, 2> markers;
  std::array<int, 2> marked_curves{};
};

[[nodiscard]] PathfinderImage draw_pathfinder(const PathfinderSettings& settings, Stream& numbers);

}  // namespace xformer::data
