// Tables in every format: marks and their footnotes, what is escaped, turned tables, and LaTeX that compiles.
#include "reporting/table.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "latex.h"

namespace xformer::reporting::table_test {

using Catch::Matchers::Contains;

namespace {

// Models by two columns of one task; a mark of its own, one that two share, a bold one and one that is not there.
Table small() {
  Table table{.title = "A table", .name = "small", .notes = {"Mean ± deviation."}};
  table.columns = {{.label = "model", .numbers = false},
                   {.label = "t", .unit = "%", .group = "t"},
                   {.label = "published", .unit = "%", .group = "t"}};
  TableCell best = number_cell(81.5, 2), other = number_cell(9.25, 2), absent{"-"};
  best.spread = "1.29", best.strong = true;
  other.notes = {"one", "two"};
  absent.notes = {"two"};
  table.rows = {{{"a"}, best, number_cell(80.10000000000001, 2)}, {{"b|c"}, other, absent}};
  return table;
}

}  // namespace

TEST_CASE("Markdown has headings with units, bold, and marks that its footnotes explain") {
  CHECK(as_markdown(small()) ==
        "| model | t, % | t published, % |\n| --- | ---: | ---: |\n| a | **81.50 ± 1.29** | 80.10 |\n"
        "| b\\|c | 9.25 <sup>a,b</sup> | - <sup>b</sup> |\n\n<sup>a</sup> one\n\n<sup>b</sup> two\n\nMean ± "
        "deviation.\n");
}

TEST_CASE("CSV and JSON have numbers that are not rounded and nothing for what is not there") {
  CHECK(as_csv(small()) == "model,\"t, %\",\"t, %, deviation\",\"t published, %\"\na,81.5,1.29,80.1\nb|c,9.25,,\n");
  const Json json = as_json(small());
  CHECK(json["rows"][0]["t, %"] == 81.5);
  CHECK(json["rows"][0]["t published, %"].dump() == "80.1");
  CHECK(json["rows"][1]["t published, %"].is_null());
  CHECK(csv_field("a \"b\", c") == "\"a \"\"b\"\", c\"");
}

TEST_CASE("a turned table has the models over its columns and loses nothing") {
  const Table turned = transposed(small());
  CHECK_THAT(as_markdown(turned),
             Contains("|  | a | b\\|c |\n| --- | ---: | ---: |\n| t, % | **81.50 ± 1.29** | 9.25"));
  CHECK(turned.rows.size() == 2);
  CHECK(footnotes(turned) == footnotes(small()));
  CHECK(note_mark(0) == "a");
  CHECK(note_mark(25) == "z");
  CHECK(note_mark(26) == "aa");
}

TEST_CASE("LaTeX has a float, a heading over the columns of a task, and numbers for siunitx or none") {
  const std::string aligned = as_latex(small(), LatexNumbers::kSiunitx),
                    plain = as_latex(small(), LatexNumbers::kPlain);
  CHECK_THAT(aligned, Contains("\\begin{table}") && Contains("\\caption{A table}") && Contains("\\label{tab:small}"));
  CHECK_THAT(aligned, Contains("\\multicolumn{2}{c}{t (\\%)}") && Contains("\\cmidrule(lr){2-3}"));
  CHECK_THAT(aligned, Contains(" & {ours} & {published} \\\\"));
  CHECK_THAT(aligned, Contains("{lS[table-format=2.2,table-space-text-post={\\,$\\pm$\\,1.29}]S[table-format=2.2]}"));
  CHECK_THAT(aligned, Contains("a & \\bfseries 81.50{\\,$\\pm$\\,1.29} & 80.10 \\\\"));
  CHECK_THAT(aligned, Contains("9.25{\\textsuperscript{a,b}} & {--\\textsuperscript{b}} \\\\"));
  CHECK_THAT(aligned, Contains("\\textsuperscript{a} one\\par") && Contains("Mean $\\pm$ deviation."));
  CHECK_THAT(aligned, Contains("retain-explicit-plus"));  // of differences
  CHECK_THAT(plain, Contains("{lrr}") && Contains("\\textbf{81.50 $\\pm$ 1.29}") && !Contains("siunitx"));
}

TEST_CASE("LaTeX of every special character compiles, and a wide table stays within the line") {
  Table table{.title = "a^b ~ \\ & % $ # _ { } < > | \" ± ≥ ×", .name = "wide"};
  table.columns = {{.label = "model", .numbers = false}};
  table.rows = {{{"linear\\_v1{a}$~^\\ &"}}, {{"#%_<>|\"±"}}};
  for (int i = 0; i < 20; ++i) {
    table.columns.push_back({.label = "t_" + std::to_string(i), .unit = "%"});
    for (auto& row : table.rows) {
      row.push_back(number_cell(-12.345 * i, 2));
      row.back().spread = "1.23", row.back().strong = i % 2 == 0;
    }
  }
  table.rows[0][3] = {"-"};
  table.rows[0][3].notes = {"out of memory: 3 > 2 & more_than_enough^2"};
  if (!latex::is_there()) {
    WARN("skipped: there is no pdflatex with siunitx and booktabs (texlive-latex-recommended, texlive-science)");
    SUCCEED();
    return;
  }
  for (const LatexNumbers numbers : {LatexNumbers::kSiunitx, LatexNumbers::kPlain}) {
    const scratch::Folder folder;
    const std::string log = latex::log_of(as_latex(table, numbers), folder.path());
    CHECK_THAT(log, !Contains("\n!") && !Contains("Overfull") && Contains("Output written on document.pdf"));
  }
}

}  // namespace xformer::reporting::table_test
