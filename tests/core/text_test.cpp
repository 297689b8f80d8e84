// Words for people: sizes, times, counts, and bytes of files in messages.
#include <catch2/catch.hpp>

#include "core/text.h"

namespace xformer::text_test {

TEST_CASE("split keeps empty parts") {
  using Parts = std::vector<std::string_view>;
  CHECK(split("a,b", ',') == Parts{"a", "b"});
  CHECK(split("", ',') == Parts{""});
  CHECK(split(",a,", ',') == Parts{"", "a", ""});
}

TEST_CASE("lines are wrapped at spaces, and inside a word only when it is longer than a line") {
  using Lines = std::vector<std::string>;
  CHECK(wrapped("one two three", 7) == Lines{"one two", "three"});
  CHECK(wrapped("one two", 80) == Lines{"one two"});
  CHECK(wrapped("", 5) == Lines{""});
  CHECK(wrapped("abcdefgh ij", 3) == Lines{"abc", "def", "gh", "ij"});
  CHECK(wrapped("≤≤ ≥", 4) == Lines{"≤≤ ≥"});  // a letter is a column, whatever its bytes
  CHECK(wrapped("a", 0) == Lines{"a"});
}

TEST_CASE("trim takes blanks off both ends only") {
  CHECK(trim(" \ta b\r\n") == "a b");
  CHECK(trim(" \t ").empty());
  CHECK(trim("").empty());
}

TEST_CASE("bytes are told in powers of 1,000") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(999) == "999 B");
  CHECK(format_bytes(1500) == "1.5 KB");
  CHECK(format_bytes(999'999) == "1.0 MB");
  CHECK(format_bytes(UINT64_MAX) == "18.4 EB");
}

TEST_CASE("durations are told in their two largest units") {
  CHECK(format_duration(0) == "0.0s");
  CHECK(format_duration(9.4) == "9.4s");
  CHECK(format_duration(59.6) == "1m00s");
  CHECK(format_duration(125) == "2m05s");
  CHECK(format_duration(3725) == "1h02m");
  CHECK(format_duration(90000) == "1d01h");
  CHECK(format_duration(-1) == "?");
  CHECK(format_duration(1.0 / 0.0) == "?");
}

TEST_CASE("counts are grouped by three digits") {
  CHECK(format_count(0) == "0");
  CHECK(format_count(999) == "999");
  CHECK(format_count(1000) == "1,000");
  CHECK(format_count(96000) == "96,000");
  CHECK(format_count(1234567890) == "1,234,567,890");
}

TEST_CASE("quoted bytes are clipped and printable") {
  CHECK(quoted("abc") == "'abc'");
  CHECK(quoted("a\tb\r\n\x01\xff") == "'a\\tb\\r\\n\\x01\\xff'");
  CHECK(quoted(std::string(100, 'x'), 3) == "'xxx...'");
}

TEST_CASE("a shell takes a word back as it was") {
  CHECK(shell_word("training.batch=8") == "training.batch=8");
  CHECK(shell_word("") == "''");
  CHECK(shell_word("two words") == "'two words'");
  CHECK(shell_word("it's") == "'it'\\''s'");
  CHECK(shell_word("[1,2]") == "'[1,2]'");
}

}  // namespace xformer::text_test
