// What Pathfinder's images are drawn with: grey rasters, line segments with the mask around them, discs (lra-recipe
// 11.2, after drewlinsley/pathfinder). Coordinates are (row, column); a direction d leads to row + sin d, column + cos
// d.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace xformer::data {

struct Place {
  int64_t row = 0, column = 0;
};

// `distance` further in a direction, both coordinates rounded up.
[[nodiscard]] Place moved(Place from, double direction, double distance);

// The offsets with row^2 + column^2 <= radius^2.
[[nodiscard]] std::vector<Place> disc(double radius);

// A square of grey values, black at first.
class Raster {
 public:
  explicit Raster(int64_t side) : side_(side), values_(static_cast<size_t>(side * side)) {}
  [[nodiscard]] int64_t side() const { return side_; }
  [[nodiscard]] bool contains(Place at) const {
    return at.row >= 0 && at.column >= 0 && at.row < side_ && at.column < side_;
  }
  [[nodiscard]] float& operator[](Place at) { return values_[static_cast<size_t>(at.row * side_ + at.column)]; }
  [[nodiscard]] float operator[](Place at) const { return values_[static_cast<size_t>(at.row * side_ + at.column)]; }
  [[nodiscard]] std::vector<float>& values() { return values_; }
  [[nodiscard]] const std::vector<float>& values() const { return values_; }

  // The larger of both values where `patch`, its middle at `centre` and times `contrast`, lies on this raster.
  void raise(const Raster& patch, Place centre, float contrast = 1);
  void raise(const Raster& other);

 private:
  int64_t side_;
  std::vector<float> values_;
};

// Smaller by a windowed sinc of three lobes (Lanczos) as wide as the reduction asks for; values stay in [0, 1].
[[nodiscard]] Raster reduced(const Raster& fine, int64_t side);

// A white disc in a black square, drawn twice as fine and reduced.
[[nodiscard]] Raster drawn_disc(int64_t side, Place centre, double radius);

struct SegmentShape {
  int64_t length = 2;      // pixels
  double thickness = 0.5;  // pixels; times `antialias` it is whole
  int64_t margin = 1;      // pixels that the mask has more on every side
  int64_t antialias = 2;   // times finer is the grid that the line is drawn on
};

// A segment that begins in the middle of two squares: the line, and the line with its margin.
struct Segment {
  Raster line, mask;
};
[[nodiscard]] Segment draw_segment(const SegmentShape& shape, double direction);
// The same, drawn once in this thread for all directions that end in the same fine pixel: there are but few.
[[nodiscard]] const Segment& segment_toward(const SegmentShape& shape, double direction);

}  // namespace xformer::data
