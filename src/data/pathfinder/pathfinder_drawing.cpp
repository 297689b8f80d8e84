#include "data/pathfinder/pathfinder_drawing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>

#include "core/error.h"
#include "data/images/resample.h"

namespace xformer::data {
namespace {

constexpr double kPi = 3.14159265358979323846;

// Bresenham's line, both ends included; where two pixels are equally near, the one further on, as Pillow chooses, with
// which the published images were drawn.
void thin_line(Raster& raster, Place from, Place to) {
  const int64_t rows = std::abs(to.row - from.row), columns = std::abs(to.column - from.column);
  const int64_t down = to.row > from.row ? 1 : -1, right = to.column > from.column ? 1 : -1;
  const int64_t along = std::max(rows, columns), across = std::min(rows, columns);
  int64_t error = 2 * across - along;
  Place at = from;
  const auto mark = [&] {
    if (raster.contains(at)) raster[at] = 1;
  };
  for (int64_t i = 0; i < along; ++i) {
    mark();
    const bool aside = error >= 0 && across > 0;
    error += 2 * across - (aside ? 2 * along : 0);
    if (aside || rows >= columns) at.row += down;
    if (aside || rows < columns) at.column += right;
  }
  mark();
}

// Every pixel whose middle lies no further than half the width from the line, half a pixel behind its ends included.
void wide_line(Raster& raster, Place from, Place to, double width) {
  const auto rows = static_cast<double>(to.row - from.row), columns = static_cast<double>(to.column - from.column);
  const double length = std::hypot(rows, columns);
  for (Place at{}; at.row < raster.side(); ++at.row)
    for (at.column = 0; at.column < raster.side(); ++at.column) {
      const auto row = static_cast<double>(at.row - from.row), column = static_cast<double>(at.column - from.column);
      const double along = (row * rows + column * columns) / length, across = (row * columns - column * rows) / length;
      if (std::abs(across) <= width / 2 && along >= -0.5 && along <= length + 0.5) raster[at] = 1;
    }
}

int64_t reach_of(const SegmentShape& shape) {
  return shape.length + static_cast<int64_t>(std::ceil(shape.thickness)) + shape.margin;
}

// In the middle of the fine grid. Places are rounded up, so it matters from where they are counted.
Place start_of(const SegmentShape& shape) {
  const int64_t middle = reach_of(shape) * shape.antialias;
  return {middle, middle};
}

}  // namespace

Place moved(Place from, double direction, double distance) {
  return {static_cast<int64_t>(std::ceil(static_cast<double>(from.row) + distance * std::sin(direction))),
          static_cast<int64_t>(std::ceil(static_cast<double>(from.column) + distance * std::cos(direction)))};
}

std::vector<Place> disc(double radius) {
  std::vector<Place> offsets;
  const auto reach = static_cast<int64_t>(radius);
  for (int64_t row = -reach; row <= reach; ++row)
    for (int64_t column = -reach; column <= reach; ++column)
      if (static_cast<double>(row * row + column * column) <= radius * radius) offsets.push_back({row, column});
  return offsets;
}

void Raster::raise(const Raster& patch, Place centre, float contrast) {
  const int64_t reach = patch.side() / 2;
  const int64_t top = centre.row - reach, left = centre.column - reach;
  const int64_t first = std::max<int64_t>(0, -left), end = std::min(patch.side(), side_ - left);
  for (int64_t row = std::max<int64_t>(0, -top); row < std::min(patch.side(), side_ - top); ++row)
    for (int64_t column = first; column < end; ++column) {
      float& value = (*this)[{top + row, left + column}];
      value = std::max(value, contrast * patch[{row, column}]);
    }
}

void Raster::raise(const Raster& other) {
  XF_ASSERT(other.side_ == side_, "rasters of one size");
  for (size_t i = 0; i < values_.size(); ++i) values_[i] = std::max(values_[i], other.values_[i]);
}

Raster reduced(const Raster& fine, int64_t side) {
  const std::vector<Taps> taps =
      resampling_taps(Filter::kLanczos, fine.side(), 0, static_cast<double>(fine.side()), side, 0, side);
  const auto within = [](double value) { return static_cast<float>(std::clamp(value, 0.0, 1.0)); };
  std::vector<float> narrow(static_cast<size_t>(fine.side() * side));
  for (int64_t row = 0; row < fine.side(); ++row)
    for (int64_t column = 0; column < side; ++column) {
      const Taps& own = taps[static_cast<size_t>(column)];
      double sum = 0;
      for (size_t i = 0; i < own.weights.size(); ++i)
        sum += own.weights[i] * static_cast<double>(fine[{row, own.first + static_cast<int64_t>(i)}]);
      narrow[static_cast<size_t>(row * side + column)] = within(sum);
    }
  Raster result(side);
  for (int64_t row = 0; row < side; ++row) {
    const Taps& own = taps[static_cast<size_t>(row)];
    for (int64_t column = 0; column < side; ++column) {
      double sum = 0;
      for (size_t i = 0; i < own.weights.size(); ++i)
        sum += own.weights[i] *
               static_cast<double>(narrow[static_cast<size_t>((own.first + static_cast<int64_t>(i)) * side + column)]);
      result[{row, column}] = within(sum);
    }
  }
  return result;
}

Raster drawn_disc(int64_t side, Place centre, double radius) {
  constexpr int64_t kFiner = 2;
  Raster fine(side * kFiner);
  for (const Place offset : disc(radius * kFiner))
    if (const Place at{centre.row * kFiner + offset.row, centre.column * kFiner + offset.column}; fine.contains(at))
      fine[at] = 1;
  return reduced(fine, side);
}

const Segment& segment_toward(const SegmentShape& shape, double direction) {
  static thread_local std::map<std::array<double, 6>, Segment> known;
  const Place start = start_of(shape);
  const Place end = moved(start, direction, static_cast<double>(shape.length * shape.antialias));
  const std::array<double, 6> key{static_cast<double>(shape.length), shape.thickness,
                                  static_cast<double>(shape.margin), static_cast<double>(shape.antialias),
                                  static_cast<double>(end.row),      static_cast<double>(end.column)};
  const auto found = known.find(key);
  return found != known.end() ? found->second : known.emplace(key, draw_segment(shape, direction)).first->second;
}

Segment draw_segment(const SegmentShape& shape, double direction) {
  const auto width = static_cast<int64_t>(std::lround(shape.thickness * static_cast<double>(shape.antialias)));
  XF_ASSERT(static_cast<double>(width) == shape.thickness * static_cast<double>(shape.antialias) && width > 0,
            "a thickness of {} is whole on a grid {} times finer", shape.thickness, shape.antialias);
  const int64_t reach = reach_of(shape);
  Raster line(2 * reach * shape.antialias + 1);
  const Place start = start_of(shape);
  const Place end = moved(start, direction, static_cast<double>(shape.length * shape.antialias));
  if (width == 1) thin_line(line, start, end);
  else wide_line(line, start, end, static_cast<double>(width));
  Raster mask(line.side());
  const std::vector<Place> around = disc(static_cast<double>(shape.margin * shape.antialias));
  for (Place at{}; at.row < line.side(); ++at.row)
    for (at.column = 0; at.column < line.side(); ++at.column) {
      if (line[at] == 0) continue;
      for (const Place offset : around)
        if (const Place near{at.row + offset.row, at.column + offset.column}; mask.contains(near)) mask[near] = 1;
    }
  return {reduced(line, 2 * reach + 1), reduced(mask, 2 * reach + 1)};
}

}  // namespace xformer::data
