// Tables and Markdown as text for a terminal.
#include <catch2/catch.hpp>

#include "core/text.h"
#include "reporting/markdown_text.h"
#include "reporting/table.h"

namespace xformer::reporting::table_text_test {
namespace {

Table sample() {
  Table table;
  table.columns = {
      {.label = "model", .numbers = false}, {.label = "speed", .unit = "ms"}, {.label = "what", .numbers = false}};
  table.rows = {{{"a"}, number_cell(1.25, 1), {"words that may be wrapped when the window is narrow"}},
                {{"longer"}, {.text = "120.0", .spread = "3.0", .notes = {"a note"}, .strong = true}, {"-"}}};
  table.notes = {"what stands below"};
  return table;
}

size_t widest(const std::string& text) {
  size_t widest = 0;
  for (const std::string_view line : split(text, '\n')) widest = std::max(widest, columns_of(line));
  return widest;
}

}  // namespace

TEST_CASE("columns are aligned, numbers to the right, and words give way first") {
  CHECK(as_text(sample(), 60) ==
        "model           speed, ms  what\n"
        "a                     1.2  words that may be wrapped when\n"
        "                           the window is narrow\n"
        "longer  120.0 ± 3.0 * [a]  -\n"
        "\n"
        "[a] a note\n"
        "\n"
        "what stands below\n");
  CHECK(widest(as_text(sample(), 0)) > 70);
}

TEST_CASE("what no wrapping makes narrow enough comes in parts, each with the first column") {
  Table table;
  table.columns = {{.label = "model", .numbers = false}};
  table.rows = {{{"linear"}}};
  for (int i = 0; i < 8; ++i) {
    table.columns.push_back({.label = "column" + std::to_string(i)});
    table.rows[0].push_back(number_cell(i, 3));
  }
  const std::string text = as_text(table, 40);
  CHECK(widest(text) <= 40);
  CHECK(text ==
        "model   column0  column1  column2\n"
        "linear    0.000    1.000    2.000\n"
        "\n"
        "model   column3  column4  column5\n"
        "linear    3.000    4.000    5.000\n"
        "\n"
        "model   column6  column7\n"
        "linear    6.000    7.000\n");
}

TEST_CASE("Markdown of ours is shown without its marks, tables aligned, the rest wrapped") {
  const std::string markdown =
      "# Table 1\n\n- an item that is longer than the window is wide\n\n| model | s |\n| --- | ---: |\n"
      "| `linear` | **1.0** <sup>a</sup> |\n| `a\\|b` | 12.5 |\n\n<sup>a</sup> of [the paper](file.md)\n";
  CHECK(markdown_as_text(markdown, 30) ==
        "Table 1\n\n"
        "- an item that is longer than\n"
        "  the window is wide\n\n"
        "model           s\n"
        "linear  1.0 * [a]\n"
        "a|b          12.5\n\n"
        "[a] of the paper\n");
}

}  // namespace xformer::reporting::table_text_test
