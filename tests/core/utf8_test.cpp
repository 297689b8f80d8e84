// Code points of texts, and where a text is none.
#include "core/utf8.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace xformer::utf8_test {

TEST_CASE("code points are taken one by one, damaged bytes each by itself", "[utf8]") {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xFFz\xC3";
  std::vector<char32_t> found;
  for (size_t at = 0; at < text.size();) found.push_back(take_code_point(text, at));
  CHECK(found == std::vector<char32_t>{'a', 0xE9, 0x20AC, 0x1F600, kNoCodePoint, 'z', kNoCodePoint});
}

TEST_CASE("the first byte that is part of no code point is found", "[utf8]") {
  for (const char* whole : {"", "abc", "\xC3\xA9", "\xEF\xBF\xBD", "\xF4\x8F\xBF\xBF"}) {
    CAPTURE(whole);
    CHECK(first_damaged_byte(whole) == std::string_view(whole).size());
  }
  CHECK(first_damaged_byte("ab\x80") == 2);
  CHECK(first_damaged_byte("\xC0\xAF") == 0);          // longer than needed
  CHECK(first_damaged_byte("a\xED\xA0\x80") == 1);     // a surrogate
  CHECK(first_damaged_byte("\xF4\x90\x80\x80") == 0);  // above U+10FFFF
  CHECK(first_damaged_byte("\xE2\x82") == 0);          // cut off
}

TEST_CASE("bytes that are no UTF-8 are written out, others are left as they are", "[utf8]") {
  CHECK(as_utf8("caf\xC3\xA9/a b") == "caf\xC3\xA9/a b");
  CHECK(as_utf8("caf\xE9/\xFF\xFEz\xC3") == "caf\\xe9/\\xff\\xfez\\xc3");
  CHECK((is_utf8("caf\xC3\xA9") && !is_utf8("caf\xE9") && is_utf8(as_utf8("caf\xE9"))));
}

}  // namespace xformer::utf8_test
