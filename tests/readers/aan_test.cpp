// Rows of the AAN pairs: what is read, and every way a row can be bad.
#include "readers/aan.h"

#include <catch2/catch.hpp>

#include "core/error.h"
#include "scratch.h"

namespace xformer::aan_test {

using Catch::Matchers::Contains;
using readers::aan::Pair;
using readers::aan::PairReader;
using scratch::Folder;

struct Row {
  int64_t label;
  std::string first_id, second_id, first, second;
  bool operator==(const Row&) const = default;
};

std::vector<Row> rows_of(const Path& path) {
  PairReader reader(path);
  std::vector<Row> rows;
  for (Pair pair; reader.next(pair);)
    rows.push_back({pair.label, std::string(pair.first_id), std::string(pair.second_id), std::string(pair.first),
                    std::string(pair.second)});
  return rows;
}

std::string refusal(const Path& path) {
  return scratch::message_of<DataError>([&] { (void)rows_of(path); });
}

TEST_CASE("a row has a label, two ids and two texts, and quotes are letters like others") {
  const Folder folder;
  const std::string text =
      "1.0\tP01-1001\tW02-0203\tFirst text, with a comma\t\"quoted\n"
      "0.0\tA\tB\t'\"\tb\"x\"\r\n"
      "1\tA\tC\tä\\n\t x \n"
      "0\t1\t2\t3\t4";
  CHECK(rows_of(scratch::put(folder / "new_aan_pairs.train.tsv", text)) ==
        std::vector<Row>{{1, "P01-1001", "W02-0203", "First text, with a comma", "\"quoted"},
                         {0, "A", "B", "'\"", "b\"x\""},
                         {1, "A", "C", "ä\\n", " x "},
                         {0, "1", "2", "3", "4"}});
}

TEST_CASE("a text may be longer than a million bytes") {
  const Folder folder;
  const std::string text(3'000'000, 'a');
  const std::vector<Row> rows =
      rows_of(scratch::put(folder / "a.tsv", "1.0\ta\tb\tc\t" + text + "\n0.0\ta\tb\tc\td\n"));
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].second == text);
}

TEST_CASE("a bad row is named with file, line and column") {
  struct Case {
    std::string row, said;
  };
  const Case bad = GENERATE(
      Case{"1.0\ta\tb\tc", ": expected 5 fields"}, Case{"1.0\ta\tb\tc", "found 4 in '1.0"},
      Case{"1.0\ta\tb\tc\td\te", "found 6 in"}, Case{"", "found 1 in ''"}, Case{"0.5\ta\tb\tc\td", ", column 1: "},
      Case{"0.5\ta\tb\tc\td", "expected the label 0 or 1, found '0.5'"}, Case{"1.0x\ta\tb\tc\td", "found '1.0x'"},
      Case{" 1.0\ta\tb\tc\td", "found ' 1.0'"}, Case{"nan\ta\tb\tc\td", "found 'nan'"},
      Case{"label\ta\tb\tc\td", "found 'label'"}, Case{"-1\ta\tb\tc\td", "found '-1'"},
      Case{"\ta\tb\tc\td", ", column 1: expected label, found nothing"},
      Case{"1\t\tb\tc\td", ", column 2: expected id 1, found nothing"},
      Case{"1\ta\tb\tc\t", ", column 5: expected text 2, found nothing"});
  const Folder folder;
  const Path path = scratch::put(folder / "a.tsv", "1.0\ta\tb\tc\td\n" + bad.row + "\n0.0\ta\tb\tc\td\n");
  CHECK_THAT(refusal(path), Contains(path.string() + ":2") && Contains(bad.said));
}

TEST_CASE("a file without rows and a binary file are refused") {
  const Folder folder;
  CHECK_THAT(refusal(scratch::put(folder / "a.tsv", "")), Contains("is empty") && Contains("label<TAB>id 1"));
  CHECK_THAT(refusal(scratch::put(folder / "b.tsv", std::string("1.0\ta\tb\t\0\td\n", 11))), Contains("NUL"));
  CHECK_THAT(refusal(folder / "missing.tsv"), Contains("No such file"));
}

}  // namespace xformer::aan_test
