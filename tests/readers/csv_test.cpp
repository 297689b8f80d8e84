// Rows of delimiter-separated text: quotes, blanks, headers, and every way a row can be bad.
#include <zlib.h>

#include <catch2/catch.hpp>

#include "core/error.h"
#include "readers/csv.h"
#include "scratch.h"

namespace xformer::csv_test {

using Catch::Matchers::Contains;
using readers::CsvFormat;
using readers::CsvReader;
using readers::parse_number;
using Row = std::vector<std::string>;
using Rows = std::vector<Row>;

const CsvFormat kHeaded{',', true, {}};

struct File {
  scratch::Folder folder;
  Path path = folder / "a.csv";
  explicit File(std::string_view content) { scratch::put(path, content); }
};

Rows rows_in(const Path& path, const CsvFormat& format = {}) {
  CsvReader reader(path, format);
  Rows rows;
  for (std::vector<std::string_view> fields; reader.next(fields);) rows.emplace_back(fields.begin(), fields.end());
  return rows;
}
Rows rows_of(std::string_view content, const CsvFormat& format = {}) { return rows_in(File(content).path, format); }

std::string refusal(std::string_view content, const CsvFormat& format = {}) {
  return scratch::message_of<DataError>([&] { (void)rows_of(content, format); });
}

TEST_CASE("fields are separated by comma, tab or semicolon") {
  const Rows expected{{"1", "b c", "3"}, {"", "x", ""}};
  CHECK(rows_of("1,b c,3\n,x,\n") == expected);
  CHECK(rows_of("1\tb c\t3\r\n\tx\t", {'\t', false, {}}) == expected);
  CHECK(rows_of("1;b c;3\n;x;\n", {';', false, {}}) == expected);
  CHECK(rows_of("1,b;2,3\n", {';', false, {}}) == Rows{{"1,b", "2,3"}});
}

TEST_CASE("blanks around fields are dropped") {
  CHECK(rows_of("39, State-gov ,\t7 \n") == Rows{{"39", "State-gov", "7"}});
  CHECK(rows_of(" a \t\t b", {'\t', false, {}}) == Rows{{"a", "", "b"}});
}

TEST_CASE("quotes keep delimiters and blanks, and two of them are one") {
  CHECK(rows_of(R"("a, b",c)") == Rows{{"a, b", "c"}});
  CHECK(rows_of(R"( " a " , "")") == Rows{{" a ", ""}});
  CHECK(rows_of(R"("say ""x""","""",y,"""a""b")") == Rows{{R"(say "x")", "\"", "y", R"("a"b)"}});
  // Fields stay valid although later ones are unescaped beside them.
  CHECK(rows_of(R"("a""","b""b""","ccccccccccccccccccccccc""")") ==
        Rows{{"a\"", "b\"b\"", "ccccccccccccccccccccccc\""}});
}

TEST_CASE("a header names the columns and is no row") {
  const File file("\xef\xbb\xbfid, \"sale price\"\n1,2\n");
  CsvReader reader(file.path, kHeaded);
  CHECK(reader.header() == Row{"id", "sale price"});
  std::vector<std::string_view> fields;
  REQUIRE(reader.next(fields));
  CHECK((fields == std::vector<std::string_view>{"1", "2"} && reader.line_number() == 2));
  CHECK(reader.where() == file.path.string() + ":2");
  CHECK_FALSE(reader.next(fields));
  CHECK(reader.bytes_read() == 24);
}

TEST_CASE("lines with a given beginning are passed over wherever they stand") {
  CHECK(rows_of("|1x3 Cross validator\n1,2\n|end, of\n3,4\n", {',', false, {"|"}}) == Rows{{"1", "2"}, {"3", "4"}});
  CHECK(rows_of("# a\na,b\n1,2\n", {',', true, {"|", "#"}}) == Rows{{"1", "2"}});
}

TEST_CASE("empty lines end a file but do not stand between rows") {
  CHECK(rows_of("1,2\n\n") == Rows{{"1", "2"}});
  CHECK(rows_of("1,2\r\n\r\n  \n") == Rows{{"1", "2"}});
  CHECK(rows_of("").empty());
  CHECK(rows_of("\n").empty());
  CHECK_THAT(refusal("1,2\n\n3,4\n"), Contains("a.csv:2: an empty line with more rows after it"));
  CHECK(rows_of("\t\n", {'\t', false, {}}) == Rows{{"", ""}});  // two empty fields
}

TEST_CASE("a gzip file gives the rows of its content") {
  const scratch::Folder folder;
  const Path path = folder / "a.csv.gz";
  gzFile packed = gzopen(path.c_str(), "wb");
  REQUIRE(gzputs(packed, "a,b\n1,2\n") == 8);
  gzclose(packed);
  CHECK(rows_in(path, kHeaded) == Rows{{"1", "2"}});
}

TEST_CASE("a ragged row is refused with file, line and both counts") {
  CHECK_THAT(refusal("1,2,3\n4,5,6\n7,8\n"), Contains("a.csv:3: expected 3 fields as in line 1, found 2 in '7,8'"));
  CHECK_THAT(refusal("|skipped\n1,2\n4,5,6\n", {',', false, {"|"}}),
             Contains("a.csv:3: expected 2 fields as in line 2, found 3"));
  CHECK_THAT(refusal("a,b\n1,2,\n", kHeaded), Contains("a.csv:2: expected 2 fields as in line 1, found 3"));
}

TEST_CASE("quotes that do not fit are refused with line and column") {
  CHECK_THAT(refusal("1,\"two\nlines\",3\n"),
             Contains("a.csv:1: the quote at column 3 is not closed on this line") && Contains("line breaks inside"));
  CHECK_THAT(refusal("1,2\n\"a\"b,2\n"),
             Contains("a.csv:2: expected the next field after the quote at column 3, found 'b'"));
  CHECK_THAT(refusal("1,5\" pipe\n"), Contains("a.csv:1: a quote inside the field '5\" pipe'"));
  CHECK_THAT(refusal("\"\"\""), Contains("quote at column 1 is not closed"));
}

TEST_CASE("a file without the header it should have is refused by name") {
  CHECK_THAT(refusal("", kHeaded), Contains("a.csv is empty: expected a header"));
  CHECK(rows_of("a,b\n", kHeaded).empty());
}

TEST_CASE("a header that is no UTF-8 is refused with its line, rows may be of any bytes") {
  CHECK_THAT(refusal("id,caf\xe9\n1,2\n", kHeaded),
             Contains("a.csv:1: expected text in UTF-8, found the byte 0xe9 behind 'caf'"));
  CHECK(rows_of("id,caf\xc3\xa9\n1,\xe9\n", kHeaded) == Rows{{"1", "\xe9"}});
}

TEST_CASE("a line may be as long as that of a sequence") {
  const std::string field(2'000'000, 'x');
  CHECK(rows_of("1," + field + "\n2,y\n") == Rows{{"1", field}, {"2", "y"}});
  CHECK_THAT(refusal("1,2\n" + std::string(CsvReader::kLongestLine + 1, '1') + "\n"),
             Contains("a.csv:2: expected lines"));
}

TEST_CASE("a number is the whole text or none") {
  CHECK(parse_number("1") == 1.0);
  CHECK(parse_number("-2.5e3") == -2500.0);
  CHECK(parse_number("+4") == 4.0);
  CHECK(parse_number(".5") == 0.5);
  CHECK(parse_number("0.1") == 0.1);
  for (const char* text : {"", "nan", "NaN", "-nan", "inf", "-Infinity", "1e999", "1 2", "1,5", "0x10", "+-1", "++1",
                           "abc", "1e", "-", "+"}) {
    INFO(text);
    CHECK_FALSE(parse_number(text).has_value());
  }
}

TEST_CASE("genuine files have the rows and fields that are documented") {
  const auto folder = scratch::real_data("tabular");
  if (!folder) {
    WARN("skipped: XFORMER_TEST_DATA names no folder with tabular/");
    SUCCEED();
    return;
  }
  struct Expected {
    const char* name;
    CsvFormat format;
    size_t rows, fields;
  };
  for (const Expected& expected :
       {Expected{"adult/adult.data.gz", {}, 32561, 15}, Expected{"adult/adult.test.gz", {',', false, {"|"}}, 16281, 15},
        Expected{"california_housing/cal_housing.data.gz", kHeaded, 20640, 9},
        Expected{"covtype_20k/covtype.20k.data.gz", {}, 20000, 55},
        Expected{"higgs_7k/binary.train", {'\t', false, {}}, 7000, 29},
        Expected{"higgs_7k/binary.test", {'\t', false, {}}, 500, 29}}) {
    INFO(expected.name);
    const Rows rows = rows_in(*folder / expected.name, expected.format);
    CHECK(rows.size() == expected.rows);
    CHECK(rows.front().size() == expected.fields);
  }
}

}  // namespace xformer::csv_test
