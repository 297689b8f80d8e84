#include "reporting/svg_plot.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "core/error.h"

namespace xformer::reporting {
namespace {

constexpr double kWidth = 760, kHeight = 480, kLeft = 76, kTop = 44, kBottom = 76;
constexpr double kLegend = 170, kRight = 24, kRoom = 0.04;  // room: share of an axis on either side of the data
constexpr double kLegendLetter = 7.2, kNoteLetter = 6.6, kNoteLine = 14;  // letters: of a wide font
constexpr double kLargestDisc = 26;                                       // radius
constexpr std::array<const char*, 8> kColours{"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                              "#56B4E9", "#E69F00", "#000000", "#8B6914"};
constexpr std::array<const char*, 3> kDashes{"none", "7 3", "2 3"};  // another one for each round of colours

// 16384 -> "16,384", 2000000 -> "2M", 0.5 -> "0.5".
std::string tick_text(double value) {
  if (std::abs(value) >= 1e6) return fmt::format("{:g}M", value / 1e6);
  std::string text = fmt::format("{:g}", value);
  if (std::abs(value) >= 1e4 && value == std::floor(value))
    text = fmt::format("{},{:03}", static_cast<int64_t>(value) / 1000, std::abs(static_cast<int64_t>(value) % 1000));
  return text;
}

// From data to the page.
class Scale {
 public:
  Scale(const PlotAxis& axis, double low, double high, double from, double to, double share)
      : logarithmic_(axis.logarithmic), from_(from), to_(to), low_(place(low)), high_(place(high)) {
    if (high_ - low_ < 1e-12) low_ -= 0.5, high_ += 0.5;
    const double room = share * (high_ - low_);
    low_ -= room, high_ += room;
    for (const double tick : !axis.ticks.empty() ? axis.ticks
                             : logarithmic_      ? log_ticks(low, high)
                                                 : round_ticks(low, high))
      if ((!logarithmic_ || tick > 0) && place(tick) >= low_ && place(tick) <= high_) ticks_.push_back(tick);
  }
  [[nodiscard]] double operator()(double value) const {
    return from_ + (place(value) - low_) / (high_ - low_) * (to_ - from_);
  }
  [[nodiscard]] const std::vector<double>& ticks() const { return ticks_; }

 private:
  [[nodiscard]] double place(double value) const { return logarithmic_ ? std::log10(value) : value; }
  // Powers of ten, and their halves and fifths where there are few.
  static std::vector<double> log_ticks(double low, double high) {
    std::vector<double> result;
    const bool few = std::log10(high / low) < 2.5;
    for (int power = static_cast<int>(std::floor(std::log10(low))); std::pow(10, power) <= high; ++power)
      for (const double times : few ? std::vector<double>{1, 2, 5} : std::vector<double>{1})
        result.push_back(times * std::pow(10, power));
    return result;
  }

  bool logarithmic_;
  double from_, to_, low_, high_;
  std::vector<double> ticks_;
};

// A mark of its own for each series: circle, square, triangle, diamond.
std::string mark(size_t series, double x, double y, const char* colour) {
  constexpr double r = 4;
  switch (series % 4) {
    case 0:
      return fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='{}' fill='{}'/>\n", x, y, r, colour);
    case 1:
      return fmt::format("<rect x='{:.1f}' y='{:.1f}' width='{}' height='{}' fill='{}'/>\n", x - r, y - r, 2 * r, 2 * r,
                         colour);
    case 2:
      return fmt::format("<path d='M{:.1f} {:.1f}l{} {}h{}z' fill='{}'/>\n", x, y - r - 1, r + 1, 2 * r + 1, -2 * r - 2,
                         colour);
    default:
      return fmt::format("<path d='M{:.1f} {:.1f}l{} {}l{} {}l{} {}z' fill='{}'/>\n", x, y - r - 1, r + 1, r + 1,
                         -r - 1, r + 1, -r - 1, -r - 1, colour);
  }
}

std::string text_at(double x, double y, const std::string& anchor, const std::string& text, int size = 13,
                    const std::string& more = "") {
  return fmt::format("<text x='{:.1f}' y='{:.1f}' font-size='{}' text-anchor='{}'{}>{}</text>\n", x, y, size, anchor,
                     more, escaped_xml(text));
}

double radius_of(const PlotPoint& point, double heaviest) {
  constexpr double kPlain = 6, kLeast = 4;
  return heaviest > 0 ? std::max(kLeast, kLargestDisc * std::sqrt(point.weight / heaviest)) : kPlain;
}

struct Disc {
  double x, y, radius;
  std::string name;
};
struct Rectangle {
  double left, top, right, low;
  [[nodiscard]] double common(const Rectangle& other) const {
    return std::max(0.0, std::min(right, other.right) - std::max(left, other.left)) *
           std::max(0.0, std::min(low, other.low) - std::max(top, other.top));
  }
};

// Where a name may stand.
struct Place {
  Rectangle box;
  double x, y;  // of the end that it is held at, and of its middle
  const char* anchor;
};

constexpr double kNameLetter = 7.8, kNameLine = 15;  // of a wide font

std::array<Place, 8> places_beside(const Disc& disc) {
  constexpr double kGap = 5;
  const double width = kNameLetter * static_cast<double>(disc.name.size()), out = disc.radius + kGap;
  const double below = disc.y + out + kNameLine / 2, above = disc.y - out - kNameLine / 2;
  const auto held = [&](double x, double y, const char* anchor) {
    const double left = *anchor == 's' ? x : *anchor == 'm' ? x - width / 2 : x - width;
    return Place{{left, y - kNameLine / 2, left + width, y + kNameLine / 2}, x, y, anchor};
  };
  const double left = disc.x - disc.radius, right = disc.x + disc.radius;
  return {held(disc.x + out, disc.y, "start"), held(disc.x - out, disc.y, "end"), held(disc.x, below, "middle"),
          held(disc.x, above, "middle"),       held(left, below, "start"),        held(left, above, "start"),
          held(right, below, "end"),           held(right, above, "end")};
}

// The names beside their discs, wherever least is covered; looked at again when the others have their places.
std::string named(const std::vector<Disc>& discs, double end) {
  constexpr int kLooks = 4;
  const Rectangle frame{kLeft, kTop, end, kHeight - kBottom};
  std::vector<std::optional<Place>> chosen(discs.size());
  for (int look = 0; look < kLooks; ++look)
    for (size_t i = 0; i < discs.size(); ++i) {
      const std::array<Place, 8> places = places_beside(discs[i]);
      const auto covered = [&](const Place& place) {
        double sum = place.box.common(place.box) - place.box.common(frame);  // what leaves the frame
        for (size_t j = 0; j < discs.size(); ++j) {
          const auto [x, y, radius, name] = discs[j];
          sum += place.box.common({x - radius, y - radius, x + radius, y + radius});
          if (j != i && chosen[j]) sum += place.box.common(chosen[j]->box);
        }
        return sum;
      };
      chosen[i] = *std::min_element(places.begin(), places.end(),
                                    [&](const Place& a, const Place& b) { return covered(a) < covered(b) - 1; });
    }
  std::string svg;
  for (size_t i = 0; i < discs.size(); ++i)
    svg += text_at(chosen[i]->x, chosen[i]->y + kNameLine / 2 - 4, chosen[i]->anchor, discs[i].name);
  return svg;
}

// The note in lines that fit below the plot.
std::vector<std::string> note_lines(const std::string& note) {
  const auto fits = static_cast<size_t>((kWidth - kLeft - kRight) / kNoteLetter);
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < note.size();) {
    size_t end = note.size();
    if (end - begin > fits) {
      end = note.rfind(' ', begin + fits);
      if (end == std::string::npos || end <= begin) end = begin + fits;
    }
    lines.push_back(note.substr(begin, end - begin));
    begin = note.find_first_not_of(' ', end);
  }
  return lines;
}

double legend_width(const Plot& plot) {
  size_t longest = 0;
  for (const PlotSeries& series : plot.series) longest = std::max(longest, series.name.size());
  return std::clamp(54 + kLegendLetter * static_cast<double>(longest), kLegend, kWidth / 2);
}

}  // namespace

std::string escaped_xml(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    if (letter == '&') result += "&amp;";
    else if (letter == '<') result += "&lt;";
    else if (letter == '>') result += "&gt;";
    else if (letter == '"') result += "&quot;";
    else result += letter;
  }
  return result;
}

std::vector<double> round_ticks(double low, double high) {
  if (!(high > low)) return {low};
  const double rough = (high - low) / 5, power = std::pow(10, std::floor(std::log10(rough)));
  const double step = power * (rough / power < 1.5 ? 1 : rough / power < 3.5 ? 2 : rough / power < 7.5 ? 5 : 10);
  std::vector<double> result;
  for (double tick = std::ceil(low / step - 1e-9) * step; tick <= high + 1e-9 * step; tick += step)
    result.push_back(std::abs(tick) < 1e-9 * step ? 0 : tick);
  return result;
}

double growth_exponent(const std::vector<PlotPoint>& points) {
  double x = 0, y = 0, xx = 0, xy = 0;
  const auto n = static_cast<double>(points.size());
  for (const PlotPoint& point : points) {
    const double a = std::log(point.x), b = std::log(point.y);
    x += a, y += b, xx += a * a, xy += a * b;
  }
  return points.size() < 2 ? std::numeric_limits<double>::quiet_NaN() : (n * xy - x * y) / (n * xx - x * x);
}

std::vector<PlotPoint> pareto_front(std::vector<PlotPoint> points, bool less_x_is_better) {
  const double sign = less_x_is_better ? -1 : 1;
  // From the best of x on, whoever has more of y than all before.
  std::sort(points.begin(), points.end(), [&](const PlotPoint& a, const PlotPoint& b) {
    return sign * a.x != sign * b.x ? sign * a.x > sign * b.x : a.y > b.y;
  });
  std::vector<PlotPoint> front;
  for (const PlotPoint& point : points)
    if (front.empty() || point.y > front.back().y) front.push_back(point);
  std::sort(front.begin(), front.end(), [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
  return front;
}

std::string as_svg(const Plot& plot) {
  const auto drawn = [&](const PlotPoint& point) {
    return std::isfinite(point.x) && std::isfinite(point.y) && (!plot.x.logarithmic || point.x > 0) &&
           (!plot.y.logarithmic || point.y > 0);
  };
  double left = INFINITY, right = -INFINITY, low = INFINITY, high = -INFINITY, heaviest = 0;
  for (const PlotSeries& series : plot.series)
    for (const PlotPoint& point : series.points) {
      if (!drawn(point)) continue;
      left = std::min(left, point.x), right = std::max(right, point.x);
      const bool band = std::isfinite(point.low) && std::isfinite(point.high) && (!plot.y.logarithmic || point.low > 0);
      low = std::min(low, band ? std::min(point.low, point.y) : point.y);
      high = std::max(high, band ? std::max(point.high, point.y) : point.y);
      heaviest = std::max(heaviest, point.weight);
    }
  XF_CHECK(std::isfinite(left), UserError, "plot '{}': there is no point to draw", plot.title);
  const double end = kWidth - (plot.discs ? kRight : legend_width(plot));
  const std::vector<std::string> note = note_lines(plot.note);
  const double page = kHeight + kNoteLine * static_cast<double>(note.empty() ? 0 : note.size() - 1);
  const double room = plot.discs ? 2 * kRoom : kRoom;
  const Scale x(plot.x, left, right, kLeft, end, room), y(plot.y, low, high, kHeight - kBottom, kTop, room);
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {} {}' width='{}' height='{}' font-family='Helvetica, "
      "Arial, "
      "sans-serif' fill='#000'>\n<title>{}</title>\n<rect width='{}' height='{}' fill='#fff'/>\n",
      kWidth, page, kWidth, page, escaped_xml(plot.title), kWidth, page);
  svg += text_at(kLeft, 24, "start", plot.title, 16, " font-weight='bold'");
  for (const double tick : x.ticks()) {
    svg += fmt::format("<line x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}' stroke='#ddd'/>\n", x(tick), kTop,
                       kHeight - kBottom);
    svg += text_at(x(tick), kHeight - kBottom + 18, "middle", tick_text(tick));
  }
  for (const double tick : y.ticks()) {
    svg += fmt::format("<line x1='{1}' x2='{2}' y1='{0:.1f}' y2='{0:.1f}' stroke='#ddd'/>\n", y(tick), kLeft, end);
    svg += text_at(kLeft - 8, y(tick) + 4, "end", tick_text(tick));
  }
  svg += fmt::format("<rect x='{}' y='{}' width='{}' height='{}' fill='none' stroke='#444'/>\n", kLeft, kTop,
                     end - kLeft, kHeight - kBottom - kTop);
  svg += text_at((kLeft + end) / 2, kHeight - kBottom + 40, "middle", plot.x.label, 14);
  svg += text_at(0, 0, "middle", plot.y.label, 14,
                 fmt::format(" transform='translate(20 {}) rotate(-90)'", (kTop + kHeight - kBottom) / 2));
  for (size_t i = 0; i < note.size(); ++i)
    svg += text_at(kLeft, kHeight - 10 + kNoteLine * static_cast<double>(i), "start", note[i], 11, " fill='#444'");
  std::vector<std::string> front;
  for (const PlotPoint& point : plot.front)
    if (drawn(point)) front.push_back(fmt::format("{:.1f},{:.1f}", x(point.x), y(point.y)));
  if (front.size() > 1)
    svg += fmt::format("<polyline points='{}' fill='none' stroke='#444' stroke-width='1.5' stroke-dasharray='5 4'/>\n",
                       fmt::join(front, " "));
  for (size_t i = 0; i < plot.series.size(); ++i) {
    const char* const colour = kColours[i % kColours.size()];
    const char* const dash = kDashes[i / kColours.size() % kDashes.size()];
    std::vector<PlotPoint> points;
    std::copy_if(plot.series[i].points.begin(), plot.series[i].points.end(), std::back_inserter(points), drawn);
    if (plot.discs) {
      for (const PlotPoint& point : points)
        svg += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='{:.1f}' fill='{}' fill-opacity='0.35' stroke='{}'/>\n",
                           x(point.x), y(point.y), radius_of(point, heaviest), colour, colour);
      continue;
    }
    std::vector<std::string> line, band, back;
    for (const PlotPoint& point : points) {
      line.push_back(fmt::format("{:.1f},{:.1f}", x(point.x), y(point.y)));
      if (!std::isfinite(point.low) || !std::isfinite(point.high) || (plot.y.logarithmic && point.low <= 0)) continue;
      band.push_back(fmt::format("{:.1f},{:.1f}", x(point.x), y(point.high)));
      back.insert(back.begin(), fmt::format("{:.1f},{:.1f}", x(point.x), y(point.low)));
    }
    band.insert(band.end(), back.begin(), back.end());
    if (band.size() > 2)
      svg += fmt::format("<polygon points='{}' fill='{}' fill-opacity='0.18'/>\n", fmt::join(band, " "), colour);
    svg += fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='2' stroke-dasharray='{}'/>\n",
                       fmt::join(line, " "), colour, dash);
    if (points.size() <= 30)
      for (const PlotPoint& point : points) svg += mark(i, x(point.x), y(point.y), colour);
    const double row = kTop + 12 + 20 * static_cast<double>(i);
    svg += fmt::format(
        "<line x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}' stroke='{}' stroke-width='2' stroke-dasharray='{}'/>\n",
        end + 12, end + 36, row, row, colour, dash);
    svg += mark(i, end + 24, row, colour) + text_at(end + 42, row + 4, "start", plot.series[i].name, 12);
  }
  if (plot.discs) {
    std::vector<Disc> discs;
    for (const PlotSeries& series : plot.series)
      for (const PlotPoint& point : series.points)
        if (drawn(point)) discs.push_back({x(point.x), y(point.y), radius_of(point, heaviest), series.name});
    svg += named(discs, end);
  }
  return svg + "</svg>\n";
}

}  // namespace xformer::reporting
