// Plots: ticks, exponents, where points and names are put, how families look, and what SVG must not contain.
#include "reporting/svg_plot.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <regex>
#include <set>

#include "core/error.h"
#include "reporting/plot_axis.h"
#include "reporting/plot_labels.h"

namespace xformer::reporting::svg_plot_test {

using Catch::Matchers::Contains;

namespace {

Plot lines() {
  Plot plot;
  plot.title = "a < b & c";
  plot.x = {"tokens", true, {1024, 2048, 16384}};
  plot.y = {"time, ms", true};
  plot.series = {{"linear", {{1024, 1}, {2048, 2}, {16384, 16}}},
                 {"square", {{.x = 1024, .y = 1, .low = 0.5, .high = 2}, {.x = 2048, .y = 4, .low = 3, .high = 5}}}};
  return plot;
}

std::vector<std::smatch> all(const std::string& text, const std::string& pattern) {
  static std::vector<std::regex> kept;  // a match refers to its text and its pattern
  kept.emplace_back(pattern);
  std::vector<std::smatch> result;
  for (std::sregex_iterator at(text.begin(), text.end(), kept.back()), end; at != end; ++at) result.push_back(*at);
  return result;
}

double number(const std::smatch& match, size_t group) { return std::stod(match[group].str()); }

// Discs of a trade-off as it comes: some on top of each other, some at the edges.
std::vector<NamedDisc> crowded() {
  std::vector<NamedDisc> discs;
  for (int i = 0; i < 14; ++i)
    discs.push_back(
        {110.0 + 45 * (i % 5) + (i / 5) * 9, 80.0 + 28 * (i % 4) + i, 6.0 + i, "mrs-model-" + std::to_string(i)});
  discs.push_back({720, 60, 26, "at-the-top-right"});
  discs.push_back({90, 390, 26, "at-the-bottom-left"});
  return discs;
}

}  // namespace

TEST_CASE("ticks are round and cover the range") {
  CHECK(round_ticks(0, 10) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(round_ticks(3, 97).front() == 20);
  CHECK(round_ticks(-1, 1).size() == 5);
  CHECK(round_ticks(5, 5) == std::vector<double>{5});
}

TEST_CASE("the numbers beside an axis are written alike") {
  using Texts = std::vector<std::string>;
  CHECK(tick_texts({33, 33.5, 34}, false) == Texts{"33.0", "33.5", "34.0"});
  CHECK(tick_texts({8192, 16384}, false) == Texts{"8,192", "16,384"});
  CHECK(tick_texts({1024, 2048}, false) == Texts{"1024", "2048"});
  CHECK(tick_texts({0.1, 1, 10}, true) == Texts{"0.1", "1", "10"});
  CHECK(tick_texts({500000, 2000000}, true) == Texts{"500,000", "2M"});
  // One value has room around it, and round numbers.
  const Scale scale({"y"}, 15.625, 15.625, 400, 0, 10);
  CHECK(scale(15.625) == Approx(200));
  for (const std::string& text : scale.texts()) CHECK(text.size() <= 5);
}

TEST_CASE("the exponent is the slope in logarithms") {
  CHECK(growth_exponent({{2, 12}, {4, 48}, {8, 192}}) == Approx(2));
  CHECK(growth_exponent({{1, 5}, {10, 5}}) == Approx(0).margin(1e-12));
  CHECK(std::isnan(growth_exponent({{1, 5}})));
}

TEST_CASE("lines have a band, marks, names and their axes' labels, and text is escaped") {
  const std::string svg = as_svg(lines());
  CHECK_THAT(svg, Contains("a &lt; b &amp; c") && Contains(">tokens<") && Contains(">time, ms<"));
  CHECK_THAT(svg, Contains(">16,384<") && Contains(">linear<") && Contains(">square<"));
  CHECK(all(svg, "<polygon").size() == 1);
  CHECK(all(svg, "<polyline").size() == 2);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
}

TEST_CASE("a logarithmic axis puts equal ratios at equal distances") {
  const std::string svg = as_svg(lines());
  const auto line = all(svg, "<polyline points='([0-9.]+),([0-9.]+) ([0-9.]+),([0-9.]+) ([0-9.]+),([0-9.]+)'");
  REQUIRE(line.size() == 1);
  const auto at = [&](size_t i) { return number(line[0], i); };
  // Eight times as far from the second to the third as from the first to the second is three times the distance.
  CHECK((at(5) - at(3)) == Approx(3 * (at(3) - at(1))).epsilon(0.01));
  CHECK((at(6) - at(4)) == Approx(3 * (at(4) - at(2))).epsilon(0.01));
  CHECK(at(2) > at(6));  // larger is higher
}

TEST_CASE("points that cannot be drawn are left out, and a plot of none is refused") {
  Plot plot = lines();
  plot.series[0].points.push_back({0, 3});
  plot.series[0].points.push_back({4096, NAN});
  CHECK(as_svg(plot) == as_svg(lines()));
  plot.series = {{"none", {{-1, 1}}}};
  CHECK_THROWS_AS(as_svg(plot), UserError);
}

TEST_CASE("mrs-X has the colour of X and another dash, and no two lines look alike") {
  Plot plot = lines();
  plot.series.clear();
  for (const char* name : {"linear", "luna", "mrs-linear", "mrs-luna", "vit/luna", "fmm, n^1.02", "mrs-fmm, n^0.98"})
    plot.series.push_back({name, {{1024, 1}, {2048, 2}}});
  const auto drawn = all(as_svg(plot), "<polyline[^>]* stroke='(#[0-9A-F]+)'[^>]*stroke-dasharray='([^']+)'");
  REQUIRE(drawn.size() == 7);
  const auto colour = [&](size_t i) { return drawn[i][1].str(); };
  CHECK((colour(0) == colour(2) && colour(1) == colour(3) && colour(1) == colour(4) && colour(5) == colour(6)));
  CHECK((colour(0) != colour(1) && colour(0) != colour(5) && colour(1) != colour(5)));
  CHECK((drawn[0][2] == "none" && drawn[2][2] == "7 3" && drawn[6][2] == "7 3" && drawn[4][2] != "7 3"));
  plot.series.clear();
  for (size_t i = 0; i < kMostLines; ++i) plot.series.push_back({"m" + std::to_string(i), {{1024, 1}, {2048, 2}}});
  std::set<std::pair<std::string, std::string>> looks;
  for (const auto& one : all(as_svg(plot), "<polyline[^>]* stroke='(#[0-9A-F]+)'[^>]*stroke-dasharray='([^']+)'"))
    looks.insert({one[1].str(), one[2].str()});
  CHECK(looks.size() == kMostLines);
  plot.series.push_back({"more", {{1024, 1}}});
  CHECK_THROWS_WITH(as_svg(plot), Contains("17 models") && Contains("more than 16") && Contains("--models"));
}

TEST_CASE("names at the ends of lines are in their order, apart, on the page, and led to") {
  Plot plot = lines();
  plot.series.clear();
  for (int i = 0; i < 16; ++i)
    plot.series.push_back({"a-rather-long-name-of-a-model-" + std::to_string(i), {{1024, 1}, {2048, 50.0 + i % 5}}});
  const std::string svg = as_svg(plot);
  const auto names = all(svg, "<text x='([0-9.]+)' y='([0-9.]+)'[^>]*>a-rather-long-name-of-a-model-([0-9]+)<");
  REQUIRE(names.size() == 16);
  const double width = number(all(svg, "viewBox='0 0 ([0-9]+) ([0-9]+)'")[0], 1);
  for (size_t i = 0; i < names.size(); ++i) {
    CHECK(number(names[i], 1) + 0.5 * 12 * 32 < width);
    CHECK((number(names[i], 2) > 44 && number(names[i], 2) < 480 - 76 + 8));
    for (size_t j = 0; j < names.size(); ++j) {
      if (i == j) continue;
      CHECK(std::abs(number(names[i], 2) - number(names[j], 2)) >= kLabelLine - 0.2);
      if (i % 5 > j % 5) CHECK(number(names[i], 2) < number(names[j], 2));
    }
  }
}

TEST_CASE("of many lines the last points have error bars in place of bands") {
  Plot plot = lines();
  plot.series.clear();
  for (const char* name : {"a", "b", "c", "d", "e"})
    plot.series.push_back(
        {name, {{.x = 1024, .y = 1, .low = 0.5, .high = 2}, {.x = 2048, .y = 2, .low = 1, .high = 3}}});
  CHECK(all(as_svg(plot), "<polygon").empty());
  CHECK(all(as_svg(plot), "stroke-width='1.2'").size() == 15);
  plot.series.pop_back();
  CHECK(all(as_svg(plot), "<polygon").size() == 4);
}

TEST_CASE("names beside discs cover no disc, no name and no frame") {
  const std::vector<NamedDisc> discs = crowded();
  const Box frame{78, 46, 734, 402};
  const std::vector<Label> labels = place_labels(discs, {}, frame);
  REQUIRE(labels.size() == discs.size());
  for (size_t i = 0; i < labels.size(); ++i) {
    CAPTURE(discs[i].name);
    CHECK(labels[i].box.common(frame) == Approx(labels[i].box.common(labels[i].box)));
    for (size_t j = 0; j < labels.size(); ++j) {
      CAPTURE(discs[j].name);
      const auto& [x, y, radius, name] = discs[j];
      const double near_x = std::clamp(x, labels[i].box.left, labels[i].box.right);
      const double near_y = std::clamp(y, labels[i].box.top, labels[i].box.low);
      CHECK(std::hypot(near_x - x, near_y - y) >= radius);
      if (i != j) CHECK(labels[i].box.common(labels[j].box) == 0);
    }
    if (labels[i].leader)  // it ends at the disc and at the name
      CHECK(std::hypot(labels[i].from_x - discs[i].x, labels[i].from_y - discs[i].y) == Approx(discs[i].radius));
  }
}

TEST_CASE("a disc's area is its weight, it lies within the axes, and bars show its spread") {
  Plot plot;
  plot.discs = true;
  plot.series = {{"first", {{.x = 1, .y = 1, .low = 0.5, .high = 1.5, .weight = 100}}},
                 {"second", {{.x = 1.05, .y = 1.01, .weight = 25}}},
                 {"third", {{.x = 9, .y = 9, .x_low = 8, .x_high = 10, .weight = 100}}}};
  const std::string svg = as_svg(plot);
  const auto discs = all(svg, "<circle cx='([0-9.]+)' cy='([0-9.]+)' r='([0-9.]+)'");
  REQUIRE(discs.size() == 3);
  CHECK(number(discs[0], 3) == Approx(2 * number(discs[1], 3)).epsilon(0.01));
  const auto frame = all(svg, "<rect x='([0-9.]+)' y='([0-9.]+)' width='([0-9.]+)' height='([0-9.]+)' fill='none'");
  REQUIRE(frame.size() == 1);
  for (const auto& disc : discs) {
    CHECK(number(disc, 1) - number(disc, 3) >= number(frame[0], 1));
    CHECK(number(disc, 1) + number(disc, 3) <= number(frame[0], 1) + number(frame[0], 3));
    CHECK(number(disc, 2) - number(disc, 3) >= number(frame[0], 2));
    CHECK(number(disc, 2) + number(disc, 3) <= number(frame[0], 2) + number(frame[0], 4));
  }
  CHECK(all(svg, "stroke-width='1.2'").size() == 6);
}

}  // namespace xformer::reporting::svg_plot_test
