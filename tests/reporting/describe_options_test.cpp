// Tables made from a small schema with every type of option.
#include <catch2/catch.hpp>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "reporting/describe_options.h"

namespace {

using namespace xformer;
using namespace xformer::reporting;

struct Options {
  int64_t projected_len = 256;
  double dropout = 0.1;
  bool shared = true;
  std::string kind = "mean|max";
  std::string note;
  std::vector<int64_t> sizes = {2, 3};
};

const std::vector<OptionInfo>& options() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::projected_len, "projected_len", "rows of E and F (k)", at_least(1))
          .add(&Options::dropout, "dropout", "share of entries that are dropped, see section 4 of the paper",
               fraction_below_one())
          .add(&Options::shared, "shared", "one E for keys and values")
          .add(&Options::kind, "kind", "how|what", one_of({"mean|max", "none"}))
          .add(&Options::note, "note", "anything\nat all")
          .add(&Options::sizes, "sizes", "a list ≤ 3", each_at_least(1));
  return kSchema.options();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

size_t columns_of(const std::string& line) {
  return static_cast<size_t>(std::count_if(line.begin(), line.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
}

}  // namespace

TEST_CASE("the columns of a wide table are aligned, one line per option") {
  const auto lines = lines_of(options_table_text(options_json(options(), "attention."), 200));
  REQUIRE(lines.size() == 7);
  CHECK(lines[0] == "option                   default   range                    meaning");
  CHECK(lines[1] == "attention.projected_len  256       at least 1               rows of E and F (k)");
  CHECK(lines[3] == "attention.shared         true      true or false            one E for keys and values");
  CHECK(lines[4] == "attention.kind           mean|max  one of mean|max, none    how|what");
  CHECK(lines[5] == "attention.note           \"\"        text                     anything at all");
  CHECK(lines[6] == "attention.sizes          2,3       a list, each at least 1  a list ≤ 3");
}

TEST_CASE("no line of a table is wider than asked and no word is lost") {
  const int width = GENERATE(60, 72, 80, 100, 133);
  const std::string table = options_table_text(options_json(options(), "attention."), width);
  for (const std::string& line : lines_of(table)) {
    CAPTURE(line);
    CHECK(columns_of(line) <= static_cast<size_t>(width));
    CHECK(line.find_last_not_of(' ') + 1 == line.size());
  }
  for (const char* const word : {"dropped,", "section", "paper", "256", "0.1", "2,3"})
    CHECK_THAT(table, Catch::Contains(word));
}

TEST_CASE("a window narrower than any table still gets a readable one") {
  const std::string table = options_table_text(options_json(options(), ""), 0);
  CHECK_THAT(table, Catch::Contains("dropout"));
  for (const std::string& line : lines_of(table)) CHECK(columns_of(line) <= 60);
}

TEST_CASE("a Markdown table keeps its columns whatever the texts hold") {
  const auto lines = lines_of(options_table_markdown(options_json(options(), "attention.")));
  REQUIRE(lines.size() == 8);
  CHECK(lines[0] == "| option | default | range | meaning |");
  CHECK(lines[1] == "| --- | --- | --- | --- |");
  CHECK(lines[2] == "| `attention.projected_len` | `256` | at least 1 | rows of E and F (k) |");
  CHECK(lines[5] == "| `attention.kind` | `mean\\|max` | one of mean\\|max, none | how\\|what |");
  CHECK(lines[6] == "| `attention.note` | `\"\"` | text | anything at all |");
}

TEST_CASE("the JSON form has the options' own types") {
  const Json list = options_json(options(), "attention.");
  REQUIRE(list.size() == 6);
  CHECK(list[0].dump() == R"x({"name":"attention.projected_len","type":"integer","default":256,)x"
                          R"x("range":"at least 1","help":"rows of E and F (k)","choices":[]})x");
  CHECK(list[1]["type"] == "real");
  CHECK(list[2]["default"] == true);
  CHECK(list[2]["range"] == "true or false");
  CHECK(list[3]["choices"] == Json::array({"mean|max", "none"}));
  CHECK(list[5]["type"] == "integer-list");
  CHECK(list[5]["default"] == Json::array({2, 3}));
}

TEST_CASE("something without options has an empty table") {
  CHECK(options_table_text(Json::array(), 80).empty());
  CHECK(options_table_markdown(Json::array()).empty());
  CHECK(options_json({}, "attention.") == Json::array());
}
