// Rows of named fields from CSV and from JSON lines, dates, and each refusal with its place.
#include "readers/named_rows.h"

#include <zlib.h>

#include <catch2/catch.hpp>

#include "core/error.h"
#include "scratch.h"

namespace xformer::named_rows_test {

using namespace readers;
using Catch::Matchers::Contains;
using Rows = std::vector<std::vector<std::string>>;

Rows rows_of(const Path& path, char delimiter = ',') {
  NamedRowReader reader(path, delimiter);
  Rows rows{reader.columns()};
  for (std::vector<std::string_view> fields; reader.next(fields);) rows.emplace_back(fields.begin(), fields.end());
  return rows;
}

std::string refusal(const std::string& name, const std::string& content) {
  const scratch::Folder folder;
  const Path path = scratch::put(folder / name, content);
  return scratch::message_of<DataError>([&] { (void)rows_of(path); });
}

TEST_CASE("the same rows come from CSV and from JSON lines, plain or gzip", "[named_rows]") {
  const scratch::Folder folder;
  const Rows meant{{"user", "sum", "word"}, {"a", "-2.5", "x, y"}, {"7", "", "true"}};
  CHECK(rows_of(scratch::put(folder / "a.csv", "user;sum;word\r\na;-2.5;x, y\r\n7;;\"true\"\r\n"), ';') == meant);
  const std::string lines = "{\"user\": \"a\", \"sum\": -2.5, \"word\": \"x, y\"}\n\n{\"word\": true, \"user\": 7}\n";
  CHECK(rows_of(scratch::put(folder / "a.jsonl", lines)) == meant);
  const Path packed = folder / "b.jsonl.gz";
  gzFile file = gzopen(packed.c_str(), "wb");
  REQUIRE(gzwrite(file, lines.data(), static_cast<unsigned>(lines.size())) == static_cast<int>(lines.size()));
  REQUIRE(gzclose(file) == Z_OK);
  CHECK(rows_of(packed) == meant);
  const std::string whole = scratch::get(packed);
  scratch::put(packed, whole.substr(0, whole.size() - 9));
  CHECK_THAT(scratch::message_of<DataError>([&] { (void)rows_of(packed); }), Contains("b.jsonl.gz"));
}

TEST_CASE("what is no row of named fields is refused with its line", "[named_rows]") {
  CHECK_THAT(refusal("a.jsonl", ""), Contains("a.jsonl is empty"));
  CHECK_THAT(refusal("a.csv", ""), Contains("a.csv is empty"));
  CHECK_THAT(refusal("a.jsonl", "{}\n"), Contains("a.jsonl:1: expected named fields"));
  CHECK_THAT(refusal("a.jsonl", "{\"user\": 1}\n{\"user\": 2"), Contains("a.jsonl:2: expected a JSON object"));
  CHECK_THAT(refusal("a.jsonl", "[1, 2]\n"), Contains("a.jsonl:1: expected a JSON object, found '[1, 2]'"));
  CHECK_THAT(refusal("a.jsonl", "{\"user\": {\"id\": 1}}\n"),
             Contains("a.jsonl:1: expected a text or a number in 'user', found an object"));
  CHECK_THAT(refusal("a.jsonl", "{\"user\": 1}\n{\"usr\": 2}\n"),
             Contains("a.jsonl:2: a field 'usr' that line 1 has not; there are user"));
  CHECK_THAT(refusal("a.jsonl", "{\"user\": \"caf\xe9\"}\n"), Contains("a.jsonl:1"));
  CHECK_THAT(refusal("a.csv", "user,caf\xe9\n1,2\n"), Contains("a.csv:1: expected text in UTF-8"));
}

TEST_CASE("a field may be as long as a text", "[named_rows]") {
  const scratch::Folder folder;
  const std::string text(2'000'000, 'x');
  const Rows meant{{"user", "text"}, {"1", text}};
  CHECK(rows_of(scratch::put(folder / "a.csv", "user,text\n1," + text + "\n")) == meant);
  CHECK(rows_of(scratch::put(folder / "a.jsonl", R"({"user": 1, "text": ")" + text + "\"}\n")) == meant);
}

TEST_CASE("dates are seconds from a day, or nothing", "[named_rows]") {
  const auto iso = [](const char* text) { return parse_date(text, DateFormat::kIso); };
  CHECK(iso("1970-01-01") == 0);
  CHECK(iso("1970-01-02") == 86400);
  CHECK(iso("1969-12-31 23:59:59") == -1);
  CHECK(iso("2000-03-01") == 951868800);  // a leap year of the rule's exception; date -u -d 2000-03-01 +%s
  CHECK(iso("1993-07-05T13:45") == 741879900);
  CHECK(iso("1993-07-05 13:45:09.75Z") == 741879909);
  for (const char* const wrong : {"", "1993", "1993-02-29", "1993-13-01", "1993-7-5", "930705", "1993-07-05 24:00",
                                  "1993-07-05 13", "1993-07-05 13:60", "1993-07-05x", "1993-07-05 13:45:09.", "soon"}) {
    CAPTURE(wrong);
    CHECK_FALSE(iso(wrong).has_value());
  }
  CHECK(parse_date("930705", DateFormat::kShort) == iso("1993-07-05"));
  CHECK(parse_date("930705 00:00:01", DateFormat::kShort) == *iso("1993-07-05") + 1);
  CHECK_FALSE(parse_date("930732", DateFormat::kShort).has_value());
  CHECK(parse_date("1.5", DateFormat::kDays) == 129600);
  for (const char* const day : {"1993-07-05", "1969-12-31", "2024-02-29 13:45:07", "1900-01-01 00:00:01"})
    CHECK(date_text(*iso(day), DateFormat::kIso) == day);
  CHECK(date_text(*iso("1993-07-05"), DateFormat::kShort) == "1993-07-05");
  CHECK(date_text(129600, DateFormat::kDays) == "day 1.500");
  CHECK(date_text(-86400, DateFormat::kDays) == "day -1");
  CHECK(date_text(1711929600, DateFormat::kSeconds) == "second 1711929600");
  CHECK(parse_date("-3", DateFormat::kSeconds) == -3);
  CHECK_FALSE(parse_date("1e300", DateFormat::kDays).has_value());
  CHECK_FALSE(parse_date("monday", DateFormat::kDays).has_value());
}

}  // namespace xformer::named_rows_test
