#include "reporting/rank_plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "reporting/svg_plot.h"

namespace xformer::reporting {
namespace {

constexpr double kSignificant = 0.05;
constexpr double kWidth = 760, kLeft = 200, kRight = 560, kAxis = 84, kRow = 22, kBar = 10;

bool is_whole(const ResultTable& table, size_t row, const std::vector<size_t>& columns) {
  return std::all_of(columns.begin(), columns.end(),
                     [&](size_t column) { return !table.cells[row][column].runs.empty(); });
}

bool told_apart(const ResultTable& table, size_t one, size_t other) {
  return std::any_of(table.comparisons.begin(), table.comparisons.end(), [&](const ModelComparison& pair) {
    return ((pair.one == one && pair.other == other) || (pair.one == other && pair.other == one)) &&
           pair.adjusted_p < kSignificant;
  });
}

// The longest runs of models in the order of their ranks of which no two are told apart: first and last place.
std::vector<std::pair<size_t, size_t>> groups(const ResultTable& table, const std::vector<size_t>& order) {
  std::vector<std::pair<size_t, size_t>> result;
  for (size_t first = 0; first < order.size(); ++first) {
    size_t last = first;
    const auto joins = [&](size_t next) {
      for (size_t i = first; i < next; ++i)
        if (told_apart(table, order[i], order[next])) return false;
      return true;
    };
    while (last + 1 < order.size() && joins(last + 1)) ++last;
    if (last > first && (result.empty() || result.back().second < last)) result.emplace_back(first, last);
  }
  return result;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text, int size = 13) {
  return fmt::format("<text x='{:.1f}' y='{:.1f}' font-size='{}' text-anchor='{}'>{}</text>\n", x, y, size, anchor,
                     escaped_xml(text));
}

std::string line(double x1, double y1, double x2, double y2, double width) {
  return fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='#000' stroke-width='{}'/>\n", x1,
                     y1, x2, y2, width);
}

// Of so few tasks, or so many pairs, that no result would tell two models apart: that it is so.
std::string limit_text(const ResultTable& table) {
  double least = 1;
  for (const ModelComparison& one : table.comparisons) least = std::min(least, one.test.least_p);
  const double adjusted = least * static_cast<double>(table.comparisons.size());
  if (adjusted < kSignificant) return "";
  return fmt::format("So few tasks could tell no two of these models apart: the least p of {} pairs is {:.2f}.",
                     table.comparisons.size(), std::min(adjusted, 1.0));
}

}  // namespace

std::vector<double> mean_ranks(const ResultTable& table) {
  std::vector<double> result(table.rows.size(), std::numeric_limits<double>::quiet_NaN());
  const std::vector<size_t> columns = table.run_columns();
  for (size_t row = 0; row < table.rows.size(); ++row) {
    if (!is_whole(table, row, columns)) continue;
    double sum = 0;
    for (const size_t column : columns) {
      const double sign = table.columns[column].metric.higher_is_better ? 1 : -1,
                   own = sign * table.cells[row][column].mean;
      double better = 0, equal = 0;
      for (size_t other = 0; other < table.rows.size(); ++other) {
        if (!is_whole(table, other, columns)) continue;
        const double score = sign * table.cells[other][column].mean;
        const double rounding = kRounding * std::max(std::abs(score), std::abs(own));
        better += score - own > rounding ? 1 : 0;
        equal += std::abs(score - own) <= rounding ? 1 : 0;
      }
      sum += better + (equal + 1) / 2;
    }
    result[row] = sum / static_cast<double>(columns.size());
  }
  return result;
}

std::string rank_plot_svg(const ResultTable& table) {
  const size_t tasks = table.run_columns().size();
  XF_CHECK(tasks >= kLeastColumns, UserError, "a diagram of ranks needs {} tasks at least, there are {}", kLeastColumns,
           tasks);
  const std::vector<double> ranks = mean_ranks(table);
  std::vector<size_t> order;
  for (size_t row = 0; row < ranks.size(); ++row)
    if (!std::isnan(ranks[row])) order.push_back(row);
  XF_CHECK(order.size() >= 2, UserError, "a diagram of ranks needs two models that have a result in every column");
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ranks[a] < ranks[b]; });
  const auto bars = groups(table, order);
  const size_t half = (order.size() + 1) / 2;
  const double names = kAxis + 16 + kBar * static_cast<double>(bars.size()) + 16;
  const std::string limit = limit_text(table);
  const double height = names + kRow * static_cast<double>(half) + (limit.empty() ? 40 : 54);
  const auto count = static_cast<double>(order.size());
  const auto x = [&](double rank) { return kLeft + (rank - 1) / (count - 1) * (kRight - kLeft); };
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' height='{1}' font-family='Helvetica, "
      "Arial, sans-serif' fill='#000'>\n<title>Mean ranks over {2} tasks</title>\n<rect width='{0}' height='{1}' "
      "fill='#fff'/>\n",
      kWidth, height, tasks);
  svg += text_at(kWidth / 2, 26, "middle", fmt::format("Mean rank over {} tasks (1 is the best)", tasks), 16);
  svg += line(kLeft, kAxis, kRight, kAxis, 1.5);
  for (size_t rank = 1; rank <= order.size(); ++rank) {
    const double at = x(static_cast<double>(rank));
    svg += line(at, kAxis - 8, at, kAxis, 1.5) + text_at(at, kAxis - 14, "middle", fmt::format("{}", rank));
  }
  for (size_t i = 0; i < bars.size(); ++i) {
    const double y = kAxis + 14 + kBar * static_cast<double>(i);
    svg += line(x(ranks[order[bars[i].first]]) - 4, y, x(ranks[order[bars[i].second]]) + 4, y, 4);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    // The better half on the left from the top, the others on the right from the bottom, so that lines do not cross.
    const bool left = i < half;
    const double y = names + kRow * static_cast<double>(left ? i : order.size() - 1 - i);
    const double at = x(ranks[order[i]]), side = left ? kLeft - 12 : kRight + 12;
    svg += line(at, kAxis, at, y, 1) + line(at, y, side, y, 1);
    const std::string name = fmt::format("{} {:.2f}", table.rows[order[i]].label, ranks[order[i]]);
    svg += text_at(left ? side - 6 : side + 6, y + 4, left ? "end" : "start", name);
  }
  svg +=
      text_at(kWidth / 2, height - (limit.empty() ? 10 : 24), "middle",
              fmt::format("Bars: models that Wilcoxon's signed ranks over tasks, adjusted by Holm, do not tell apart "
                          "(p ≥ {}).",
                          kSignificant),
              11);
  if (!limit.empty()) svg += text_at(kWidth / 2, height - 10, "middle", limit, 11);
  return svg + "</svg>\n";
}

}  // namespace xformer::reporting
