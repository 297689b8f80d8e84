#include "reporting/heat_map.h"

#include <catch2/catch.hpp>

#include "core/error.h"
#include "reporting/svg_plot.h"

namespace xformer::reporting {

using Catch::Matchers::Contains;

namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("each number is a cell, white the least and dark the most") {
  const HeatMap map{"weights", "key", "query", "", 2, 3, {0, 0.5, 1, 1, 0, 0.25}};
  const std::string svg = as_svg(map);
  CHECK(count(svg, "width='133.33' height='133.33' fill='#ffffff'") == 2);
  CHECK(count(svg, "width='133.33' height='133.33' fill='#08183a'") == 2);
  CHECK_THAT(svg, Contains(">query<") && Contains(">key<") && !Contains("Means over blocks"));
  CHECK_THROWS_AS(as_svg(HeatMap{}), UserError);
}

TEST_CASE("a large matrix is shown in means over blocks") {
  HeatMap map{"weights", "key", "query", "", 200, 200, std::vector<double>(200 * 200, 0.25)};
  map.values[0] = 0.25 + 9;  // its block of 3 x 3 has a mean of 1.25
  const std::string svg = as_svg(map);
  CHECK_THAT(svg, Contains("Means over blocks of 3 x 3") && Contains(">1.25<") && Contains(">0.25<"));
  CHECK(count(svg, "<rect ") == 67 * 67 + 40 + 3);
}

TEST_CASE("long names and notes have room") {
  Plot plot;
  plot.note = std::string(60, 'a') + " " + std::string(90, 'b') + " end";
  plot.series = {{"short", {{.x = 1, .y = 1}, {.x = 2, .y = 2}}}};
  const std::string narrow = as_svg(plot);
  plot.series[0].name = std::string(40, 'n');
  const std::string wide = as_svg(plot);
  // The frame is narrower the longer the names are, and then the page wider.
  CHECK_THAT(narrow, Contains("width='563.0' height='360' fill='none'"));
  CHECK_THAT(wide, Contains("width='420.0' height='360' fill='none'") && Contains("viewBox='0 0 876 "));
  CHECK_THAT(narrow, Contains(">" + std::string(60, 'a') + "<") && Contains(">" + std::string(90, 'b') + " end<"));
}

}  // namespace xformer::reporting
