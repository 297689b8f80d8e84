// The ListOps language: ids, values, and the rows of both file layouts, good and bad.
#include <catch2/catch.hpp>

#include "core/error.h"
#include "readers/listops.h"
#include "scratch.h"

namespace xformer::listops_reader_test {

using Catch::Matchers::Contains;
using namespace readers::listops;
using Ids = std::vector<uint8_t>;

Ids ids_of(std::string_view text) {
  Ids ids;
  encode(text, "here:1", ids);
  return ids;
}

int64_t value_of(std::string_view text) { return evaluate(ids_of(text)); }

std::string malformed(const Ids& ids) {
  return scratch::message_of<DataError>([&] { (void)evaluate(ids); });
}

std::string refusal(const Path& path, Layout layout = Layout::kLra) {
  return scratch::message_of<DataError>([&] {
    RowReader rows(path, layout);
    for (Row row; rows.next(row);) {
    }
  });
}

TEST_CASE("the table of ids is that of lra-recipe 3.1") {
  CHECK(ids_of("0 1 2 3 4 5 6 7 8 9 [MIN [MAX [MED [SM ]") == Ids{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  // A change of the table makes every trained model useless: it must be meant.
  CHECK(vocabulary_sha256() == "680a026d5f72191e2b24c89297b2cc489a26db432f154d7f00bddd51a74f8b26");
}

TEST_CASE("round brackets and repeated blanks are dropped") {
  CHECK(ids_of("( ( ( [MAX 4 ) 3 ) ] )") == ids_of("[MAX 4 3 ]"));
  CHECK(ids_of("  [MAX   4 3 ] ") == ids_of("[MAX 4 3 ]"));
  CHECK(ids_of("").empty());
}

TEST_CASE("decoding gives the expression that was encoded") {
  const std::string text = "[MAX 4 3 [MIN 2 3 ] 1 0 [MED 1 5 8 9 2 ] ]";
  CHECK(decode(ids_of(text)) == text);
  CHECK_THROWS_AS(decode(Ids{1, 0, 2}), DataError);
  CHECK_THROWS_AS(decode(Ids{16}), DataError);
}

TEST_CASE("the example of the benchmark's paper has the value 5") {
  CHECK(value_of("[MAX 4 3 [MIN 2 3 ] 1 0 [MED 1 5 8 9 2 ] ]") == 5);
}

TEST_CASE("operators take their values") {
  CHECK(value_of("7") == 7);
  CHECK(value_of("[MIN 4 2 9 ]") == 2);
  CHECK(value_of("[MAX 4 2 9 ]") == 9);
  CHECK(value_of("[SM 4 2 9 ]") == 5);
  CHECK(value_of("[SM 5 5 ]") == 0);
  CHECK(value_of("[MED 9 1 4 ]") == 4);
  CHECK(value_of("[MED 1 4 ]") == 2);  // the integer part of 2.5
  CHECK(value_of("[MED 8 1 9 2 ]") == 5);
  CHECK(value_of("[SM [SM 9 9 ] [SM 9 9 ] 1 ]") == 7);
}

TEST_CASE("an expression of any depth is evaluated") {
  Ids ids(200000, kMax);
  ids.push_back(kFirstDigit + 3);
  ids.insert(ids.end(), 200000, kClose);
  CHECK(evaluate(ids) == 3);
}

TEST_CASE("malformed expressions are diagnosed") {
  CHECK_THAT(malformed({}), Contains("found none"));
  CHECK_THAT(malformed(ids_of("]")), Contains("found ']' at symbol 1"));
  CHECK_THAT(malformed(ids_of("[MAX ]")), Contains("arguments of [MAX at symbol 1"));
  CHECK_THAT(malformed(ids_of("[MAX 1 [SM 2 3 ]")), Contains("expected ']' for the [MAX at symbol 1"));
  CHECK_THAT(malformed(ids_of("[MAX 1 [SM 2 3")), Contains("expected ']' for the [SM at symbol 3"));
  CHECK_THAT(malformed(ids_of("1 2")), Contains("more at symbol 2"));
  CHECK_THAT(malformed(ids_of("[MAX 1 ] ]")), Contains("more at symbol 4"));
  CHECK_THAT(malformed(Ids{0}), Contains("found 0"));
  CHECK_THAT(malformed(Ids{16}), Contains("found 16"));
}

TEST_CASE("an unknown symbol is refused with its place and the nearest symbol") {
  const auto message = [](std::string_view text) {
    return scratch::message_of<DataError>([&] { (void)ids_of(text); });
  };
  CHECK_THAT(message("[MEDIAN 1 2 ]"),
             Contains("here:1:") && Contains("'[MEDIAN'") && Contains("did you mean '[MED'?"));
  CHECK_THAT(message("[max 1 2 ]"), Contains("did you mean '[MAX'?"));
  CHECK_THAT(message("[MAX 1 12 ]"), Contains("found '12'"));
  CHECK_THAT(message("[MAX 1 \xff ]"), Contains("found '\\xff'"));
}

TEST_CASE("the arena's layout is read with LF and CRLF") {
  const scratch::Folder folder;
  for (const std::string end : {"\n", "\r\n"}) {
    RowReader rows(scratch::put(folder / "a.tsv", "Source\tTarget" + end + "( ( ( [SM 1 ) 2 ) ] )\t3" + end + "7\t7"),
                   Layout::kLra);
    Row row;
    REQUIRE(rows.next(row));
    CHECK((row.tokens == ids_of("[SM 1 2 ]") && row.label == 3));
    REQUIRE(rows.next(row));
    CHECK((row.tokens == ids_of("7") && row.label == 7));
    CHECK(rows.line_number() == 3);
    CHECK_FALSE(rows.next(row));
  }
}

TEST_CASE("the original layout has the answer first and no header") {
  const scratch::Folder folder;
  RowReader rows(scratch::put(folder / "a.tsv", "3\t( ( ( [SM 1 ) 2 ) ] )\n"), Layout::kOriginal);
  Row row;
  REQUIRE(rows.next(row));
  CHECK((row.tokens == ids_of("[SM 1 2 ]") && row.label == 3));
  CHECK_FALSE(rows.next(row));
}

TEST_CASE("an empty file and a file without rows are refused by name") {
  const scratch::Folder folder;
  const Path path = folder / "a.tsv";
  scratch::put(path, "");
  CHECK_THAT(refusal(path), Contains(path.string()) && Contains("is empty"));
  CHECK_THAT(refusal(path, Layout::kOriginal), Contains(path.string()) && Contains("is empty"));
  scratch::put(path, "Source\tTarget\r\n");
  CHECK_THAT(refusal(path), Contains(path.string()) && Contains("at least one row"));
}

TEST_CASE("a wrong header is shown beside the right one") {
  const scratch::Folder folder;
  const Path path = scratch::put(folder / "a.tsv", "Target\tSource\n3\t3\n");
  CHECK_THAT(refusal(path),
             Contains(path.string() + ":1:") && Contains("'Source\\tTarget'") && Contains("found 'Target\\tSource'"));
}

TEST_CASE("bad rows are refused with file and line") {
  struct Case {
    const char* row;
    const char* said;
  };
  const auto bad = GENERATE(Case{"[SM 1 2 ]\t10", "label from 0 to 9"}, Case{"[SM 1 2 ]\t-1", "found '-1'"},
                            Case{"[SM 1 2 ]\tx", "found 'x'"}, Case{"[SM 1 2 ]\t", "found ''"},
                            Case{"[SM 1 2 ]", "found 1 in"}, Case{"[SM 1 2 ]\t3\t4", "found 3 in"},
                            Case{"[SUM 1 2 ]\t3", "'[SUM'"}, Case{"\t3", "found none"}, Case{"", "two fields"});
  const scratch::Folder folder;
  const Path path = scratch::put(folder / "a.tsv", std::string("Source\tTarget\n1\t1\n") + bad.row + "\n2\t2\n");
  CHECK_THAT(refusal(path), Contains(path.string() + ":3:") && Contains(bad.said));
}

TEST_CASE("every row of the real files parses and has the value of its expression") {
  const auto folder = scratch::real_data("listops");
  if (!folder) {
    WARN("skipped: XFORMER_TEST_DATA names no folder with listops/");
    SUCCEED();
    return;
  }
  struct File {
    const char* name;
    Layout layout;
    int64_t rows, shortest, longest;
  };
  for (const File& file : {File{"lra_script_output/basic_train.tsv.gz", Layout::kLra, 2000, 501, 1999},
                           File{"lra_script_output/basic_val.tsv.gz", Layout::kLra, 500, 501, 1999},
                           File{"lra_script_output/basic_test.tsv.gz", Layout::kLra, 500, 501, 1999},
                           File{"test_d20s.tsv.gz", Layout::kOriginal, 10000, 1, 939}}) {
    INFO(file.name);
    RowReader rows(*folder / file.name, file.layout);
    int64_t count = 0, wrong = 0, outside = 0;
    for (Row row; rows.next(row); ++count) {
      const auto length = static_cast<int64_t>(row.tokens.size());
      wrong += evaluate(row.tokens) == row.label ? 0 : 1;
      outside += length < file.shortest || length > file.longest ? 1 : 0;
    }
    CHECK(count == file.rows);
    CHECK(wrong == 0);
    CHECK(outside == 0);
  }
}

}  // namespace xformer::listops_reader_test
