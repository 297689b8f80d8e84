// Plots: ticks, exponents, where points and names are put, and what SVG must not contain.
#include "reporting/svg_plot.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <regex>

#include "core/error.h"

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

}  // namespace

TEST_CASE("ticks are round and cover the range") {
  CHECK(round_ticks(0, 10) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(round_ticks(3, 97).front() == 20);
  CHECK(round_ticks(-1, 1).size() == 5);
  CHECK(round_ticks(5, 5) == std::vector<double>{5});
}

TEST_CASE("the exponent is the slope in logarithms") {
  CHECK(growth_exponent({{2, 12}, {4, 48}, {8, 192}}) == Approx(2));
  CHECK(growth_exponent({{1, 5}, {10, 5}}) == Approx(0).margin(1e-12));
  CHECK(std::isnan(growth_exponent({{1, 5}})));
}

TEST_CASE("lines have a band, marks, a legend and their axes' labels, and text is escaped") {
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
  const auto number = [&](size_t i) { return std::stod(line[0][i].str()); };
  // Eight times as far from the second to the third as from the first to the second is three times the distance.
  CHECK((number(5) - number(3)) == Approx(3 * (number(3) - number(1))).epsilon(0.01));
  CHECK((number(6) - number(4)) == Approx(3 * (number(4) - number(2))).epsilon(0.01));
  CHECK(number(2) > number(6));  // larger is higher
}

TEST_CASE("points that cannot be drawn are left out, and a plot of none is refused") {
  Plot plot = lines();
  plot.series[0].points.push_back({0, 3});
  plot.series[0].points.push_back({4096, NAN});
  CHECK(as_svg(plot) == as_svg(lines()));
  plot.series = {{"none", {{-1, 1}}}};
  CHECK_THROWS_AS(as_svg(plot), UserError);
}

TEST_CASE("a disc's area is its weight, and names do not cover each other") {
  Plot plot;
  plot.discs = true;
  plot.series = {{"first", {{.x = 1, .y = 1, .weight = 100}}},
                 {"second", {{.x = 1.05, .y = 1.01, .weight = 25}}},
                 {"third", {{.x = 9, .y = 9, .weight = 25}}}};
  const std::string svg = as_svg(plot);
  const auto discs = all(svg, "<circle cx='([0-9.]+)' cy='([0-9.]+)' r='([0-9.]+)'");
  REQUIRE(discs.size() == 3);
  CHECK(std::stod(discs[0][3].str()) == Approx(2 * std::stod(discs[1][3].str())).epsilon(0.01));
  const auto names = all(svg, "<text x='([0-9.]+)' y='([0-9.]+)'[^>]*>(first|second)<");
  REQUIRE(names.size() == 2);
  const double apart = std::abs(std::stod(names[0][2].str()) - std::stod(names[1][2].str()));
  const double beside = std::abs(std::stod(names[0][1].str()) - std::stod(names[1][1].str()));
  CHECK((apart > 14 || beside > 40));
}

}  // namespace xformer::reporting::svg_plot_test
