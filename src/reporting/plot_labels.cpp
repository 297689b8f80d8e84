#include "reporting/plot_labels.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <optional>

#include "core/text.h"

namespace xformer::reporting {
namespace {

constexpr double kGap = 5;

double distance(double x1, double y1, double x2, double y2) { return std::hypot(x1 - x2, y1 - y2); }

// Of a segment inside a box, by points along it.
double inside(const Label& label, const Box& box) {
  constexpr int kSteps = 24;
  int hits = 0;
  for (int i = 0; i <= kSteps; ++i) {
    const double x = label.from_x + (label.to_x - label.from_x) * i / kSteps;
    const double y = label.from_y + (label.to_y - label.from_y) * i / kSteps;
    hits += x > box.left && x < box.right && y > box.top && y < box.low ? 1 : 0;
  }
  return hits;
}

Box square(const NamedDisc& disc) {
  return {disc.x - disc.radius, disc.y - disc.radius, disc.x + disc.radius, disc.y + disc.radius};
}

// The label of a disc in a direction, so far from its edge.
Label at(const NamedDisc& disc, double angle, double away) {
  const double width = label_width(disc.name), reach = disc.radius + away;
  const double dx = std::cos(angle), dy = std::sin(angle);
  // The box touches the point at `reach` with the side or corner that looks at the disc.
  const double x = disc.x + reach * dx, y = disc.y + reach * dy;
  const double left = x - width / 2 + dx * width / 2, middle = y + dy * kLabelLine / 2;
  Label label;
  label.box = {left, middle - kLabelLine / 2, left + width, middle + kLabelLine / 2};
  label.leader = away > kGap;
  label.from_x = disc.x + disc.radius * dx, label.from_y = disc.y + disc.radius * dy;
  label.to_x = std::clamp(x, label.box.left, label.box.right), label.to_y = std::clamp(y, label.box.top, label.box.low);
  return label;
}

std::vector<Label> candidates(const NamedDisc& disc) {
  constexpr int kDirections = 16;
  std::vector<Label> result;
  for (const double away : {kGap, 16.0, 28.0, 44.0, 62.0, 84.0, 110.0, 150.0, 200.0})
    for (int i = 0; i < kDirections; ++i) result.push_back(at(disc, 2 * std::numbers::pi * i / kDirections, away));
  return result;
}

}  // namespace

double Box::common(const Box& other) const {
  return std::max(0.0, std::min(right, other.right) - std::max(left, other.left)) *
         std::max(0.0, std::min(low, other.low) - std::max(top, other.top));
}

double label_width(const std::string& text) {
  constexpr double kLetter = 7.4;
  return kLetter * static_cast<double>(columns_of(text));
}

// Greedy, and looked at again when the others have their places.
std::vector<Label> place_labels(const std::vector<NamedDisc>& discs, const std::vector<Box>& bars, const Box& frame) {
  constexpr int kLooks = 6;
  constexpr double kOutside = 1000, kCovers = 50, kCrosses = 40;
  std::vector<std::optional<Label>> chosen(discs.size());
  // What is in the way of a label, and how far it is from its disc.
  const auto cost = [&](size_t own, const Label& label) {
    double sum = distance(label.from_x, label.from_y, label.to_x, label.to_y);
    sum += kOutside * (label.box.common(label.box) - label.box.common(frame));
    for (const Box& bar : bars) sum += kCovers * label.box.common(bar) / kLabelLine;
    for (size_t j = 0; j < discs.size(); ++j) {
      sum += kCovers * label.box.common(square(discs[j]));
      if (j == own) continue;
      if (label.leader) sum += kCrosses * inside(label, square(discs[j]));
      if (!chosen[j]) continue;
      sum += kCovers * label.box.common(chosen[j]->box);
      if (label.leader) sum += kCrosses * inside(label, chosen[j]->box);
      if (chosen[j]->leader) sum += kCrosses * inside(*chosen[j], label.box);
    }
    return sum;
  };
  for (int look = 0; look < kLooks; ++look)
    for (size_t i = 0; i < discs.size(); ++i) {
      double least = INFINITY;
      for (const Label& label : candidates(discs[i]))
        if (const double own = cost(i, label); own < least - 1e-9) least = own, chosen[i] = label;
    }
  std::vector<Label> result;
  for (const auto& one : chosen) result.push_back(*one);
  return result;
}

std::vector<double> spread_out(const std::vector<double>& wanted, double apart, double top, double low) {
  std::vector<size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return wanted[a] < wanted[b]; });
  std::vector<double> result = wanted;
  double least = top;
  for (const size_t i : order) {
    result[i] = std::max(result[i], least);
    least = result[i] + apart;
  }
  double most = low;
  for (auto i = order.rbegin(); i != order.rend(); ++i) {
    result[*i] = std::min(result[*i], most);
    most = result[*i] - apart;
  }
  return result;
}

}  // namespace xformer::reporting
