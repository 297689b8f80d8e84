#include "reporting/svg_plot.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "reporting/plot_axis.h"
#include "reporting/plot_labels.h"

namespace xformer::reporting {
namespace {

constexpr double kWidth = 760, kHeight = 480, kLeft = 76, kTop = 44, kBottom = 76, kRight = 24;
constexpr double kNarrowest = 420;                    // of the frame: longer names make a wider page
constexpr double kNoteLetter = 6.2, kNoteLine = 14;   // of a wide font
constexpr double kLargestDisc = 26, kLinesRoom = 14;  // radius; between a line's end and the frame
constexpr size_t kMostBands = 4;                      // more are a fog
constexpr std::array<const char*, 8> kColours{"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                              "#56B4E9", "#E69F00", "#000000", "#8B6914"};
constexpr std::array<const char*, 6> kDashes{"none", "7 3", "2 3", "10 3 2 3", "14 4", "5 2 1 2"};

struct Style {
  const char* colour;
  const char* dash;
  size_t mark;
  bool open;
};

// "vit/mrs-softmax, n^1.02" -> "mrs-softmax".
std::string model_of(const std::string& series) {
  const std::string whole = series.substr(0, series.find_first_of(", "));
  return whole.substr(whole.rfind('/') + 1);
}

// A family has a colour and a mark; mrs-X is dashed and open, what else a family has takes the dashes that are left. Of
// one family alone each line has a colour.
std::vector<Style> styles_of(const std::vector<PlotSeries>& series) {
  constexpr std::string_view kScales = "mrs-";
  std::map<std::string, size_t> places;
  for (const PlotSeries& one : series) {
    const std::string model = model_of(one.name);
    places.try_emplace(model.starts_with(kScales) ? model.substr(kScales.size()) : model, places.size());
  }
  std::vector<Style> result;
  std::vector<std::pair<size_t, size_t>> taken;  // colour and dash
  for (size_t i = 0; i < series.size(); ++i) {
    const std::string model = model_of(series[i].name);
    const bool scales = model.starts_with(kScales);
    const size_t family = places.at(scales ? model.substr(kScales.size()) : model);
    const size_t place = places.size() > 1 ? family : i, colour = place % kColours.size();
    size_t dash = scales ? 1 : 0;
    while (dash + 1 < kDashes.size() && std::count(taken.begin(), taken.end(), std::pair(colour, dash)) > 0)
      dash += dash == 0 ? 2 : 1;  // the dashes of mrs-X are kept for it
    taken.emplace_back(colour, dash);
    result.push_back({kColours[colour], kDashes[dash], place, scales});
  }
  return result;
}

// Circle, square, triangle, diamond.
std::string mark(const Style& style, double x, double y) {
  constexpr double r = 4;
  const std::string paint =
      fmt::format("fill='{}' stroke='{}' stroke-width='1.5'", style.open ? "#fff" : style.colour, style.colour);
  switch (style.mark % 4) {
    case 0:
      return fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='{}' {}/>\n", x, y, r, paint);
    case 1:
      return fmt::format("<rect x='{:.1f}' y='{:.1f}' width='{}' height='{}' {}/>\n", x - r, y - r, 2 * r, 2 * r,
                         paint);
    case 2:
      return fmt::format("<path d='M{:.1f} {:.1f}l{} {}h{}z' {}/>\n", x, y - r - 1, r + 1, 2 * r + 1, -2 * r - 2,
                         paint);
    default:
      return fmt::format("<path d='M{:.1f} {:.1f}l{} {}l{} {}l{} {}z' {}/>\n", x, y - r - 1, r + 1, r + 1, -r - 1,
                         r + 1, -r - 1, -r - 1, paint);
  }
}

std::string text_at(double x, double y, const std::string& anchor, const std::string& text, int size = 13,
                    const std::string& more = "") {
  return fmt::format("<text x='{:.1f}' y='{:.1f}' font-size='{}' text-anchor='{}'{}>{}</text>\n", x, y, size, anchor,
                     more, escaped_xml(text));
}

std::string line(double x1, double y1, double x2, double y2, const std::string& colour, double width,
                 const std::string& more = "") {
  return fmt::format("<line x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}' stroke='{}' stroke-width='{}'{}/>\n", x1,
                     x2, y1, y2, colour, width, more);
}

double radius_of(const PlotPoint& point, double heaviest) {
  constexpr double kPlain = 6, kLeast = 4;
  return heaviest > 0 ? std::max(kLeast, kLargestDisc * std::sqrt(point.weight / heaviest)) : kPlain;
}

// The plot with what is drawn of it alone.
class Drawing {
 public:
  explicit Drawing(const Plot& plot) : plot_(plot), styles_(styles_of(plot.series)) {
    double left = INFINITY, right = -INFINITY, low = INFINITY, high = -INFINITY, longest = 0;
    for (const PlotSeries& series : plot.series) {
      longest = std::max(longest, label_width(series.name));
      for (const PlotPoint& point : series.points) {
        if (!drawn(point)) continue;
        const bool wide = has_x_bar(point), tall = has_bar(point);
        left = std::min(left, wide ? point.x_low : point.x), right = std::max(right, wide ? point.x_high : point.x);
        low = std::min(low, tall ? point.low : point.y), high = std::max(high, tall ? point.high : point.y);
        heaviest_ = std::max(heaviest_, point.weight);
      }
    }
    XF_CHECK(std::isfinite(left), UserError, "plot '{}': there is no point to draw", plot.title);
    const double names = plot.discs ? kRight : kLabels + longest + kRight;
    width_ = std::max(kWidth, kLeft + kNarrowest + names);
    end_ = width_ - names;
    const double room = plot.discs ? kLargestDisc + 4 : kLinesRoom;
    x_.emplace(plot.x, left, right, kLeft, end_, room);
    y_.emplace(plot.y, low, high, kHeight - kBottom, kTop, room);
  }

  [[nodiscard]] std::string svg() const {
    std::vector<std::string> note;
    if (!plot_.note.empty()) note = wrapped(plot_.note, static_cast<size_t>((width_ - kLeft - kRight) / kNoteLetter));
    const double page = kHeight + kNoteLine * static_cast<double>(note.empty() ? 0 : note.size() - 1);
    std::string svg = fmt::format(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0:.0f} {1:.0f}' width='{0:.0f}' height='{1:.0f}' "
        "font-family='Helvetica, Arial, sans-serif' fill='#000'>\n<title>{2}</title>\n<rect width='{0:.0f}' "
        "height='{1:.0f}' fill='#fff'/>\n",
        width_, page, escaped_xml(plot_.title));
    svg += text_at(kLeft, 24, "start", plot_.title, 16, " font-weight='bold'") + axes();
    for (size_t i = 0; i < note.size(); ++i)
      svg += text_at(kLeft, kHeight - 10 + kNoteLine * static_cast<double>(i), "start", note[i], 11, " fill='#444'");
    return svg + (plot_.discs ? discs() : lines()) + "</svg>\n";
  }

 private:
  static constexpr double kLabels = 60;  // leaders and samples of the lines, left of their names

  [[nodiscard]] bool drawn(const PlotPoint& point) const {
    return std::isfinite(point.x) && std::isfinite(point.y) && (!plot_.x.logarithmic || point.x > 0) &&
           (!plot_.y.logarithmic || point.y > 0);
  }
  [[nodiscard]] bool has_bar(const PlotPoint& point) const {
    return std::isfinite(point.low) && std::isfinite(point.high) && (!plot_.y.logarithmic || point.low > 0);
  }
  [[nodiscard]] bool has_x_bar(const PlotPoint& point) const {
    return std::isfinite(point.x_low) && std::isfinite(point.x_high) && (!plot_.x.logarithmic || point.x_low > 0);
  }
  [[nodiscard]] double x(double value) const { return (*x_)(value); }
  [[nodiscard]] double y(double value) const { return (*y_)(value); }

  [[nodiscard]] std::string axes() const {
    std::string svg;
    double free_from = -INFINITY;
    const std::vector<std::string> under = x_->texts(), beside = y_->texts();
    for (size_t i = 0; i < under.size(); ++i) {
      const double at = x(x_->ticks()[i]), half = label_width(under[i]) / 2;
      svg += line(at, kTop, at, kHeight - kBottom, "#ddd", 1);
      if (at - half < free_from) continue;
      svg += text_at(at, kHeight - kBottom + 18, "middle", under[i]);
      free_from = at + half;
    }
    for (size_t i = 0; i < beside.size(); ++i) {
      const double at = y(y_->ticks()[i]);
      svg += line(kLeft, at, end_, at, "#ddd", 1) + text_at(kLeft - 8, at + 4, "end", beside[i]);
    }
    svg += fmt::format("<rect x='{}' y='{}' width='{:.1f}' height='{}' fill='none' stroke='#444'/>\n", kLeft, kTop,
                       end_ - kLeft, kHeight - kBottom - kTop);
    svg += text_at((kLeft + end_) / 2, kHeight - kBottom + 40, "middle", plot_.x.label, 14);
    return svg + text_at(0, 0, "middle", plot_.y.label, 14,
                         fmt::format(" transform='translate(20 {}) rotate(-90)'", (kTop + kHeight - kBottom) / 2));
  }

  // A bar from low to high at x with its ends, and the same lying.
  [[nodiscard]] static std::string bar(double at, double low, double high, const char* colour) {
    constexpr double kEnd = 3;
    return line(at, low, at, high, colour, 1.2) + line(at - kEnd, low, at + kEnd, low, colour, 1.2) +
           line(at - kEnd, high, at + kEnd, high, colour, 1.2);
  }
  [[nodiscard]] static std::string lying_bar(double at, double left, double right, const char* colour) {
    constexpr double kEnd = 3;
    return line(left, at, right, at, colour, 1.2) + line(left, at - kEnd, left, at + kEnd, colour, 1.2) +
           line(right, at - kEnd, right, at + kEnd, colour, 1.2);
  }

  [[nodiscard]] std::string discs() const {
    std::string svg;
    std::vector<std::string> front;
    for (const PlotPoint& point : plot_.front)
      if (drawn(point)) front.push_back(fmt::format("{:.1f},{:.1f}", x(point.x), y(point.y)));
    if (front.size() > 1)
      svg +=
          fmt::format("<polyline points='{}' fill='none' stroke='#444' stroke-width='1.5' stroke-dasharray='5 4'/>\n",
                      fmt::join(front, " "));
    std::vector<NamedDisc> named;
    std::vector<Box> bars;
    for (size_t i = 0; i < plot_.series.size(); ++i)
      for (const PlotPoint& point : plot_.series[i].points) {
        if (!drawn(point)) continue;
        const char* const colour = styles_[i].colour;
        const double at_x = x(point.x), at_y = y(point.y), radius = radius_of(point, heaviest_);
        svg += fmt::format(
            "<circle cx='{:.1f}' cy='{:.1f}' r='{:.1f}' fill='{}' fill-opacity='0.3' stroke='{}' "
            "stroke-dasharray='{}'/>\n",
            at_x, at_y, radius, colour, colour, styles_[i].open ? "4 2" : "none");
        named.push_back({at_x, at_y, radius, plot_.series[i].name});
        if (has_bar(point)) {
          svg += bar(at_x, y(point.low), y(point.high), colour);
          bars.push_back({at_x - 3, y(point.high), at_x + 3, y(point.low)});
        }
        if (has_x_bar(point)) {
          svg += lying_bar(at_y, x(point.x_low), x(point.x_high), colour);
          bars.push_back({x(point.x_low), at_y - 3, x(point.x_high), at_y + 3});
        }
      }
    const std::vector<Label> labels = place_labels(named, bars, {kLeft + 2, kTop + 2, end_ - 2, kHeight - kBottom - 2});
    for (size_t i = 0; i < labels.size(); ++i) {
      const Label& label = labels[i];
      if (label.leader) svg += line(label.from_x, label.from_y, label.to_x, label.to_y, "#888", 0.8);
      svg += text_at((label.box.left + label.box.right) / 2, label.box.low - 4, "middle", named[i].name);
    }
    return svg;
  }

  [[nodiscard]] std::string lines() const {
    std::string svg;
    std::vector<size_t> shown;
    std::vector<PlotPoint> ends;
    const bool bands = plot_.series.size() <= kMostBands;
    for (size_t i = 0; i < plot_.series.size(); ++i) {
      const Style& style = styles_[i];
      std::vector<PlotPoint> points;
      for (const PlotPoint& point : plot_.series[i].points)
        if (drawn(point)) points.push_back(point);
      if (points.empty()) continue;
      std::vector<std::string> path, band, back;
      for (const PlotPoint& point : points) {
        path.push_back(fmt::format("{:.1f},{:.1f}", x(point.x), y(point.y)));
        if (!bands || !has_bar(point)) continue;
        band.push_back(fmt::format("{:.1f},{:.1f}", x(point.x), y(point.high)));
        back.insert(back.begin(), fmt::format("{:.1f},{:.1f}", x(point.x), y(point.low)));
      }
      band.insert(band.end(), back.begin(), back.end());
      if (band.size() > 2)
        svg +=
            fmt::format("<polygon points='{}' fill='{}' fill-opacity='0.18'/>\n", fmt::join(band, " "), style.colour);
      svg += fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='2' stroke-dasharray='{}'/>\n",
                         fmt::join(path, " "), style.colour, style.dash);
      if (has_marks(points))
        for (const PlotPoint& point : points) svg += mark(style, x(point.x), y(point.y));
      // A line of one point has no band to be seen in, either.
      if (const PlotPoint& last = points.back(); has_bar(last) && (!bands || points.size() == 1))
        svg += bar(x(last.x), y(last.low), y(last.high), style.colour);
      shown.push_back(i);
      ends.push_back(points.back());
    }
    std::vector<double> wanted;
    for (const PlotPoint& point : ends) wanted.push_back(y(point.y));
    const std::vector<double> heights = spread_out(wanted, kLabelLine, kTop + 6, kHeight - kBottom - 6);
    for (size_t j = 0; j < shown.size(); ++j) {
      const Style& style = styles_[shown[j]];
      const double row = heights[j];
      svg += line(x(ends[j].x) + 5, wanted[j], end_ + 14, row, style.colour, 0.7, " stroke-opacity='0.7'");
      svg += line(end_ + 14, row, end_ + 46, row, style.colour, 2, fmt::format(" stroke-dasharray='{}'", style.dash));
      if (has_marks(plot_.series[shown[j]].points)) svg += mark(style, end_ + 30, row);
      svg += text_at(end_ + 52, row + 4, "start", plot_.series[shown[j]].name, 12);
    }
    return svg;
  }

  [[nodiscard]] static bool has_marks(const std::vector<PlotPoint>& points) { return points.size() <= 30; }

  const Plot& plot_;
  std::vector<Style> styles_;
  std::optional<Scale> x_, y_;
  double heaviest_ = 0, width_ = 0, end_ = 0;
};

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
  const size_t most = plot.discs ? kMostDiscs : kMostLines;
  XF_CHECK(
      plot.series.size() <= most, UserError,
      "plot '{}': {} models, and no more than {} can be told apart in one picture; --models a,b takes some of them",
      plot.title, plot.series.size(), most);
  return Drawing(plot).svg();
}

}  // namespace xformer::reporting
