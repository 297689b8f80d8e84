// Plots as SVG: lines named at their ends, or discs named beside them, over linear or logarithmic axes; black on white,
// in colours that the colour-blind tell apart (Okabe and Ito 2008) and with marks and dashes that printing in grey
// leaves. Models of a family share a colour: mrs-X is the dashed X, its marks are open.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace xformer::reporting {

struct PlotPoint {
  double x = 0, y = 0;
  // Edges of a band around a line, or of the error bars of a disc, where both are there.
  double low = std::numeric_limits<double>::quiet_NaN(), high = std::numeric_limits<double>::quiet_NaN();
  double x_low = std::numeric_limits<double>::quiet_NaN(), x_high = std::numeric_limits<double>::quiet_NaN();
  double weight = 0;  // of a disc: its area is in proportion
};

struct PlotSeries {
  std::string name;
  std::vector<PlotPoint> points;
};

struct PlotAxis {
  std::string label;  // with its unit: "step time, ms"
  bool logarithmic = false;
  std::vector<double> ticks = {};  // none: round numbers
};

struct Plot {
  std::string title;
  PlotAxis x, y;
  std::vector<PlotSeries> series;
  bool discs = false;  // of each point, named beside it; else lines with marks, named at their ends
  // A line behind the discs, from point to point.
  std::vector<PlotPoint> front = {};
  std::string note;  // below: conditions, what a band is
};

// More could not be told apart.
inline constexpr size_t kMostLines = 16, kMostDiscs = 24;

// Points that are not finite, or not positive on a logarithmic axis, are left out. UserErrors: a plot without any
// point, and one of too many series, which says how to draw fewer. Bands are drawn of a few lines; of more the last
// point of each has an error bar in their place.
[[nodiscard]] std::string as_svg(const Plot& plot);

// For the text and the attributes of SVG and HTML.
[[nodiscard]] std::string escaped_xml(const std::string& text);

// Those that no other point equals or beats both ways, by x: more is better of y, and of x unless less is.
[[nodiscard]] std::vector<PlotPoint> pareto_front(std::vector<PlotPoint> points, bool less_x_is_better);

// The slope of log y over log x by least squares: the exponent of growth. NaN of fewer than two points.
[[nodiscard]] double growth_exponent(const std::vector<PlotPoint>& points);

}  // namespace xformer::reporting
