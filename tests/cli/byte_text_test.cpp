// Bytes on a terminal: what is UTF-8 stays, what is none or would move the cursor is spelt out.
#include "cli/byte_text.h"

#include <catch2/catch.hpp>

using xformer::cli::ByteText;

namespace {

std::string whole(const std::string& bytes) {
  ByteText text;
  const std::string shown = text.add(bytes);
  return shown + text.rest();
}

std::string one_by_one(const std::string& bytes) {
  ByteText text;
  std::string shown;
  for (const char byte : bytes) shown += text.add(std::string(1, byte));
  return shown + text.rest();
}

}  // namespace

TEST_CASE("UTF-8 is shown as it is, other bytes as their numbers, however they come", "[generate]") {
  const std::pair<std::string, std::string> cases[] = {
      {"plain text\n\tand \\ more", "plain text\n\tand \\ more"},
      {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
      {std::string("a\0b", 3), "a\\x00b"},
      {"\x1b[31mred\r\x7f", "\\x1b[31mred\\x0d\\x7f"},  // escapes and carriage returns would act
      {"\xc2\x85\xc2\x9b"
       "x\xc2\xa0",
       "\\xc2\\x85\\xc2\\x9bx\xc2\xa0"},  // so would control characters of two bytes
      {"\xff\xfe", "\\xff\\xfe"},
      {"\xc3(", "\\xc3("},  // a character that does not go on
      {"\xe2\x82 \xe2\x82\xac", "\\xe2\\x82 \xe2\x82\xac"},
      {"\xc0\xaf\xe0\x80\xaf\xf0\x80\x80\xaf", "\\xc0\\xaf\\xe0\\x80\\xaf\\xf0\\x80\\x80\\xaf"},  // too long
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},                                                        // a surrogate
      {"\xf4\x90\x80\x80\xf5", "\\xf4\\x90\\x80\\x80\\xf5"},                                      // above U+10FFFF
      {"end \xe2\x82", "end \\xe2\\x82"}};
  for (const auto& [bytes, shown] : cases) {
    CAPTURE(shown);
    CHECK(whole(bytes) == shown);
    CHECK(one_by_one(bytes) == shown);
  }
}

TEST_CASE("a character waits for its last byte, and no longer than it may go on", "[generate]") {
  ByteText text;
  CHECK(text.add("\xe2").empty());
  CHECK(text.add("\x82").empty());
  CHECK(text.add("\xac") == "\xe2\x82\xac");
  CHECK(text.add("\xe2\x82").empty());
  CHECK(text.add("x") == "\\xe2\\x82x");
  CHECK(text.rest().empty());
}
