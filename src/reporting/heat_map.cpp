#include "reporting/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "reporting/plot_axis.h"
#include "reporting/svg_plot.h"

namespace xformer::reporting {
namespace {

constexpr double kSide = 400, kLeft = 76, kTop = 44, kBottom = 76, kScale = 110;

// From white over blue to nearly black: luminance falls all the way.
std::string colour(double share) {
  constexpr double kStops[3][3] = {{255, 255, 255}, {66, 133, 189}, {8, 24, 58}};
  const double at = std::clamp(share, 0.0, 1.0) * 2;
  const int low = std::min(1, static_cast<int>(at));
  const double part = at - low;
  int mixed[3];
  for (int i = 0; i < 3; ++i)
    mixed[i] = static_cast<int>(std::lround(kStops[low][i] * (1 - part) + kStops[low + 1][i] * part));
  return fmt::format("#{:02x}{:02x}{:02x}", mixed[0], mixed[1], mixed[2]);
}

std::string text_at(double x, double y, const char* anchor, const std::string& text, int size, const char* more = "") {
  return fmt::format("<text x='{:.1f}' y='{:.1f}' font-size='{}' text-anchor='{}'{}>{}</text>\n", x, y, size, anchor,
                     more, escaped_xml(text));
}

// Means over blocks of `block` x `block`.
std::vector<double> pooled(const HeatMap& map, int64_t block, int64_t rows, int64_t columns) {
  std::vector<double> sums(static_cast<size_t>(rows * columns), 0), counts(sums.size(), 0);
  for (int64_t row = 0; row < map.rows; ++row)
    for (int64_t column = 0; column < map.columns; ++column) {
      const auto cell = static_cast<size_t>(row / block * columns + column / block);
      sums[cell] += map.values[static_cast<size_t>(row * map.columns + column)];
      counts[cell] += 1;
    }
  for (size_t i = 0; i < sums.size(); ++i) sums[i] /= counts[i];
  return sums;
}

}  // namespace

std::string as_svg(const HeatMap& map) {
  XF_CHECK(map.rows > 0 && map.columns > 0, UserError, "'{}': there is nothing to draw", map.title);
  const int64_t longest = std::max(map.rows, map.columns), block = (longest + kMostCells - 1) / kMostCells;
  const int64_t rows = (map.rows + block - 1) / block, columns = (map.columns + block - 1) / block;
  const std::vector<double> cells = pooled(map, block, rows, columns);
  const auto [least, most] = std::minmax_element(cells.begin(), cells.end());
  const double span = *most > *least ? *most - *least : 1;
  const double cell = kSide / static_cast<double>(std::max(rows, columns));
  const double width = cell * static_cast<double>(columns), height = cell * static_cast<double>(rows);
  const double page_width = kLeft + width + kScale, page_height = kTop + height + kBottom;
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0:.0f} {1:.0f}' width='{0:.0f}' height='{1:.0f}' "
      "font-family='Helvetica, Arial, sans-serif' fill='#000'>\n<title>{2}</title>\n<rect width='{0:.0f}' "
      "height='{1:.0f}' fill='#fff'/>\n<g shape-rendering='crispEdges'>\n",
      page_width, page_height, escaped_xml(map.title));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      svg += fmt::format("<rect x='{:.2f}' y='{:.2f}' width='{:.2f}' height='{:.2f}' fill='{}'/>\n",
                         kLeft + cell * static_cast<double>(column), kTop + cell * static_cast<double>(row), cell, cell,
                         colour((cells[static_cast<size_t>(row * columns + column)] - *least) / span));
  constexpr int kSteps = 40;
  for (int i = 0; i < kSteps; ++i)
    svg += fmt::format("<rect x='{:.1f}' y='{:.2f}' width='14' height='{:.2f}' fill='{}'/>\n", kLeft + width + 20,
                       kTop + height * (kSteps - 1 - i) / kSteps, height / kSteps, colour((i + 0.5) / kSteps));
  svg += fmt::format("</g>\n<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='none' stroke='#444'/>\n",
                     kLeft, kTop, width, height);
  svg += fmt::format("<rect x='{:.1f}' y='{:.1f}' width='14' height='{:.1f}' fill='none' stroke='#444'/>\n",
                     kLeft + width + 20, kTop, height);
  svg += text_at(kLeft + width + 40, kTop + 10, "start", fmt::format("{:.3g}", *most), 12);
  svg += text_at(kLeft + width + 40, kTop + height, "start", fmt::format("{:.3g}", *least), 12);
  svg += text_at(kLeft, 26, "start", map.title, 15, " font-weight='bold'");
  for (const double tick : round_ticks(0, static_cast<double>(map.columns)))
    svg += text_at(kLeft + cell * tick / static_cast<double>(block), kTop + height + 18, "middle",
                   fmt::format("{:g}", tick), 12);
  for (const double tick : round_ticks(0, static_cast<double>(map.rows)))
    svg +=
        text_at(kLeft - 8, kTop + cell * tick / static_cast<double>(block) + 4, "end", fmt::format("{:g}", tick), 12);
  svg += text_at(kLeft + width / 2, kTop + height + 40, "middle", map.x_label, 14);
  svg +=
      fmt::format("<text font-size='14' text-anchor='middle' transform='translate(20 {:.1f}) rotate(-90)'>{}</text>\n",
                  kTop + height / 2, escaped_xml(map.y_label));
  const std::string note =
      block > 1 ? fmt::format("{}{}Means over blocks of {} x {}.", map.note, map.note.empty() ? "" : " ", block, block)
                : map.note;
  if (!note.empty()) svg += text_at(kLeft, page_height - 10, "start", note, 11, " fill='#444'");
  return svg + "</svg>\n";
}

}  // namespace xformer::reporting
