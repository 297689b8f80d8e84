#include "data/pathfinder/pathfinder_generator.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cmath>
#include <map>
#include <optional>

#include "core/error.h"

namespace xformer::data {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr int64_t kMostSide = 128;
constexpr int64_t kPaddleTries = 3, kDistractorTries = 5, kMostRestarts = 100'000;
constexpr float kMostOverlap = 1.8F;    // of a paddle's mask on what is taken: less than twice
constexpr double kLeastWeight = 1e-4;   // of all ways on together
constexpr double kLeastFree = 0.01;     // of all pixels, for one more distractor
constexpr float kTaken = 0.3F;          // a mask above it takes the pixel
constexpr float kWhole = 254.5F / 255;  // a mask that is 1 in 8 bits

using Row = std::bitset<kMostSide>;

// The pixels that a segment's mask covers whole, around the place where it begins; none where the search for such a
// place is bound to fail. As published they are looked for one pixel further down and to the right, and where at a
// corner of the image all of them would lie outside, the search finds no place at all (there OpenCV's dilation gives
// the least number, which the script takes for a mistake). Of all directions one in twelve remains at 32 pixels, so
// most distractors are never drawn, and curves begin in few directions.
std::vector<Place> footprint_of(const Raster& mask, int64_t reach, int64_t side) {
  std::vector<Place> footprint;
  const int64_t middle = mask.side() / 2, last = side - 1;
  for (Place at{}; at.row < mask.side(); ++at.row)
    for (at.column = 0; at.column < mask.side(); ++at.column) {
      const Place offset{at.row - middle + 1, at.column - middle + 1};
      if (mask[at] >= kWhole && std::abs(offset.row) <= reach && std::abs(offset.column) <= reach)
        footprint.push_back(offset);
    }
  for (const Place corner : {Place{0, 0}, Place{0, last}, Place{last, 0}, Place{last, last}})
    if (std::none_of(footprint.begin(), footprint.end(), [&](Place offset) {
          const Place at{corner.row + offset.row, corner.column + offset.column};
          return at.row >= 0 && at.column >= 0 && at.row < side && at.column < side;
        }))
      return {};
  return footprint;
}

double degrees(Stream& numbers) { return (static_cast<double>(numbers.next_below(360)) - 180) * kPi / 180; }

double angle_between(double one, double other) {
  const double difference = std::fmod(std::abs(one - other), 2 * kPi);
  return std::min(difference, 2 * kPi - difference);
}

struct Curve {
  Raster image;
  Place tail, head, pivot;  // a curve goes on around its pivot
  double direction = 0;
  const Segment* last = nullptr;  // not yet part of what is taken, so that neighbours may touch
  Place last_at;
};

class Painter {
 public:
  Painter(const PathfinderSettings& settings, Stream& numbers)
      : settings_(settings),
        numbers_(numbers),
        margin_(settings.margins[numbers.next_below(settings.margins.size())]),
        shape_{settings.paddle_length, settings.thickness, margin_},
        gap_(disc(static_cast<double>(margin_))) {}

  PathfinderImage paint(int64_t label) {
    std::optional<std::array<Curve, 2>> curves;
    Raster empty(settings_.side), taken = empty;
    add_frame(empty, settings_.border);
    for (int64_t i = 0; !curves; ++i) {
      XF_ASSERT(i < kMostRestarts, "{} attempts gave no pair of curves", i);
      taken = empty;
      curves = draw_pair(taken);
    }
    Raster image = (*curves)[0].image;
    image.raise((*curves)[1].image);
    const Curve& second = (*curves)[1];  // of it alone, as published: a distractor may touch the first one's end
    taken.raise(second.last->mask, second.last_at);
    for (int64_t i = 0; i < settings_.distractors && add_distractor(image, taken); ++i) {
    }
    PathfinderImage result;
    result.label = label;
    for (size_t i = 0; i < 2; ++i) result.ends[i] = {(*curves)[i].tail, (*curves)[i].head};
    const auto origin = static_cast<int>(numbers_.next_below(2));
    result.marked_curves = {origin, label == 1 ? origin : 1 - origin};
    result.markers = {(*curves)[static_cast<size_t>(result.marked_curves[0])].tail,
                      (*curves)[static_cast<size_t>(result.marked_curves[1])].head};
    for (const Place marker : result.markers) image.raise(drawn_disc(settings_.side, marker, settings_.marker_radius));
    const auto [least, most] = std::minmax_element(image.values().begin(), image.values().end());
    for (const float value : image.values())
      result.pixels.push_back(static_cast<uint8_t>(std::lround(255 * (value - *least) / (*most - *least))));
    return result;
  }

 private:
  // Taken: so many pixels on every side.
  void add_frame(Raster& taken, int64_t border) const {
    const int64_t side = settings_.side;
    for (int64_t row = 0; row < side; ++row) {
      const bool whole = row < border || row >= side - border;
      const int64_t left = whole ? side : border, right = whole ? side : std::max(border, side - border);
      for (int64_t column = 0; column < left; ++column) taken[{row, column}] = 1;
      for (int64_t column = right; column < side; ++column) taken[{row, column}] = 1;
    }
  }

  // The places of a segment that begins in this direction, looked for once in this thread.
  [[nodiscard]] const std::vector<Place>& footprint_toward(double direction) const {
    static thread_local std::map<std::pair<const Segment*, int64_t>, std::vector<Place>> known;
    const Segment& segment = segment_toward(shape_, direction);
    const auto [entry, added] = known.try_emplace({&segment, settings_.side});
    if (added) entry->second = footprint_of(segment.mask, settings_.paddle_length + margin_, settings_.side);
    return entry->second;
  }

  float contrast(bool target) const {
    return static_cast<float>(settings_.snake_contrast * (target ? settings_.paddle_contrast : 1));
  }

  // The first paddle of a curve; nullopt where an end lies outside.
  std::optional<Curve> begun(Place tail, double direction, bool target) const {
    const Place head = moved(tail, direction, static_cast<double>(settings_.paddle_length));
    Raster image(settings_.side);
    if (!image.contains(tail) || !image.contains(head)) return std::nullopt;
    const Segment& segment = segment_toward(shape_, direction);
    image.raise(segment.line, tail, contrast(target));
    const Place pivot = moved(head, direction + kPi, static_cast<double>(settings_.paddle_length + margin_));
    if (!image.contains(pivot)) return std::nullopt;
    return Curve{std::move(image), tail, head, pivot, direction, &segment, tail};
  }

  // Where a segment may begin: its footprint lies on nothing that is taken.
  std::vector<Place> free_places(const Raster& taken, const std::vector<Place>& footprint) const {
    const int64_t side = settings_.side;
    std::array<Row, kMostSide> is_taken, blocked;
    for (Place at{}; at.row < side; ++at.row)
      for (at.column = 0; at.column < side; ++at.column)
        if (taken[at] > kTaken) is_taken[static_cast<size_t>(at.row)].set(static_cast<size_t>(at.column));
    for (const Place offset : footprint)
      for (int64_t row = std::max<int64_t>(0, -offset.row); row < std::min(side, side - offset.row); ++row) {
        const Row& under = is_taken[static_cast<size_t>(row + offset.row)];
        const auto columns = static_cast<size_t>(std::abs(offset.column));
        blocked[static_cast<size_t>(row)] |= offset.column >= 0 ? under >> columns : under << columns;
      }
    std::vector<Place> places;
    for (Place at{}; at.row < side; ++at.row)
      for (at.column = 0; at.column < side; ++at.column)
        if (!blocked[static_cast<size_t>(at.row)][static_cast<size_t>(at.column)]) places.push_back(at);
    return places;
  }

  // Steps 2 and 3 of lra-recipe 11.3; nullopt where a curve found no way on. `taken` is spoilt then.
  std::optional<std::array<Curve, 2>> draw_pair(Raster& taken) {
    const double direction = degrees(numbers_);
    const std::vector<Place>& footprint = footprint_toward(direction);
    if (footprint.empty()) return std::nullopt;
    const auto [known, added] = beginnings_.try_emplace(&footprint);
    if (added) {  // nothing but the frame is taken yet, at every attempt
      Raster framed = taken;
      add_frame(framed, 2 * settings_.seed_distance);
      known->second = free_places(framed, footprint);
    }
    const std::vector<Place>& places = known->second;
    if (places.empty()) return std::nullopt;
    auto first = begun(places[numbers_.next_below(places.size())], direction, true);
    if (!first) return std::nullopt;
    const double away = degrees(numbers_);
    const auto distance = static_cast<double>(settings_.seed_distance);
    const Place tail{std::lround(static_cast<double>(first->tail.row) + distance * std::sin(away)),
                     std::lround(static_cast<double>(first->tail.column) + distance * std::cos(away))};
    auto second = begun(tail, degrees(numbers_), true);
    if (!second) return std::nullopt;
    for (int64_t i = 1; i < settings_.contour_length; ++i)
      for (Curve* curve : {&*first, &*second})
        if (!grow(*curve, taken, true)) return std::nullopt;
    return std::array{std::move(*first), std::move(*second)};
  }

  // One paddle more.
  bool grow(Curve& curve, Raster& taken, bool target) {
    const Place pivot = moved(curve.pivot, curve.direction, static_cast<double>(settings_.paddle_length + 2 * margin_));
    std::vector<Place> places;
    std::vector<double> directions, sums;
    double sum = 0;
    const double radius = static_cast<double>(settings_.paddle_length + margin_);
    for (int64_t i = 0; static_cast<double>(i) < 2 * kPi * radius; ++i) {
      const double angle = static_cast<double>(i) / radius;
      const Place at{static_cast<int64_t>(static_cast<double>(pivot.row) + radius * std::sin(angle)),
                     static_cast<int64_t>(static_cast<double>(pivot.column) + radius * std::cos(angle))};
      const auto same = [&](Place other) { return other.row == at.row && other.column == at.column; };
      if (!taken.contains(at) || std::any_of(places.begin(), places.end(), same)) continue;
      const double direction =
          std::atan2(static_cast<double>(at.row - pivot.row), static_cast<double>(at.column - pivot.column));
      const double turn = std::min(settings_.continuity * angle_between(direction, curve.direction), kPi / 2);
      float near = 0;
      for (const Place offset : gap_)
        if (const Place under{at.row + offset.row, at.column + offset.column}; taken.contains(under))
          near = std::max(near, taken[under]);
      sum += (1 - static_cast<double>(near)) * std::cos(turn) * std::cos(turn);
      places.push_back(at);
      directions.push_back(direction);
      sums.push_back(sum);
    }
    if (sum < kLeastWeight) return false;
    for (int64_t i = 0; i < kPaddleTries; ++i) {
      const double drawn = numbers_.next_unit() * sum;
      const auto chosen = std::min(
          static_cast<size_t>(std::upper_bound(sums.begin(), sums.end(), drawn) - sums.begin()), sums.size() - 1);
      const Segment& segment = segment_toward(shape_, directions[chosen] + kPi);  // from its end back towards the pivot
      if (most_overlap(taken, segment.mask, places[chosen]) >= kMostOverlap) continue;
      curve.image.raise(segment.line, places[chosen], contrast(target));
      taken.raise(curve.last->mask, curve.last_at);
      curve.last = &segment;
      curve.last_at = curve.head = places[chosen];
      curve.pivot = pivot;
      curve.direction = directions[chosen];
      return true;
    }
    return false;
  }

  static float most_overlap(const Raster& taken, const Raster& mask, Place centre) {
    const int64_t reach = mask.side() / 2;
    float most = 0;
    for (Place at{}; at.row < mask.side(); ++at.row)
      for (at.column = 0; at.column < mask.side(); ++at.column)
        if (const Place under{centre.row + at.row - reach, centre.column + at.column - reach}; taken.contains(under))
          most = std::max(most, taken[under] + mask[at]);
    return most;
  }

  // False where there is no room for any more. One that finds no way in its tries is left out.
  bool add_distractor(Raster& image, Raster& taken) {
    for (int64_t i = 0; i < kDistractorTries; ++i) {
      const auto free =
          std::count_if(taken.values().begin(), taken.values().end(), [](float at) { return at <= kTaken; });
      if (static_cast<double>(free) < kLeastFree * static_cast<double>(taken.values().size())) return false;
      const double direction = degrees(numbers_);
      const std::vector<Place>& footprint = footprint_toward(direction);
      if (footprint.empty()) continue;
      Raster framed = taken;
      add_frame(framed, 1);
      const std::vector<Place> places = free_places(framed, footprint);
      if (places.empty()) continue;
      auto curve = begun(places[numbers_.next_below(places.size())], direction, false);
      if (!curve) continue;
      Raster tried = taken;
      bool whole = true;
      for (int64_t j = 1; j < settings_.distractor_length && whole; ++j) whole = grow(*curve, tried, false);
      if (!whole) continue;
      tried.raise(curve->last->mask, curve->last_at);
      taken = std::move(tried);
      image.raise(curve->image);
      return true;
    }
    return true;
  }

  const PathfinderSettings& settings_;
  Stream& numbers_;
  int64_t margin_;
  SegmentShape shape_;
  std::vector<Place> gap_;
  std::map<const std::vector<Place>*, std::vector<Place>> beginnings_;  // where a pair may begin, by footprint
};

}  // namespace

PathfinderSettings pathfinder_settings(int64_t side, int64_t contour_length) {
  XF_ASSERT(side == 32 || side == 128, "images of 32 or 128 pixels, not {}", side);
  PathfinderSettings settings;
  settings.contour_length = contour_length;
  settings.distractor_length = std::max<int64_t>(1, contour_length / 3);
  settings.distractors = 20 / settings.distractor_length;
  if (side == 32) return settings;
  settings.side = 128;
  settings.margins = {2, 3};
  settings.paddle_length = 5;
  settings.thickness = 1.5;
  settings.marker_radius = 3;
  settings.seed_distance = 20;
  settings.continuity = 1.8;
  settings.distractors = 35 / settings.distractor_length;
  settings.snake_contrast = 0.9;
  settings.paddle_contrast = 1;
  return settings;
}

PathfinderImage draw_pathfinder(const PathfinderSettings& settings, Stream& numbers) {
  const auto label = static_cast<int64_t>(numbers.next_below(2));
  return Painter(settings, numbers).paint(label);
}

}  // namespace xformer::data
