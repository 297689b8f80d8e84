// Models of SentencePiece, written field by field, and each damage that is refused.
#include "readers/piece_model.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "scratch.h"

namespace xformer::piece_model_test {

using namespace readers;
using Catch::Matchers::Contains;

namespace {

std::string varint(uint64_t value) {
  std::string result;
  for (; value >= 0x80; value >>= 7) result += static_cast<char>((value & 0x7F) | 0x80);
  return result + static_cast<char>(value);
}
std::string field(int number, const std::string& bytes) {
  return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(bytes.size()) + bytes;
}
std::string piece(const std::string& text, float score, int kind = 1) {
  std::string four(4, '\0');
  std::memcpy(four.data(), &score, 4);
  return field(1, field(1, text) + varint(2 << 3 | 5) + four + varint(3 << 3) + varint(static_cast<uint64_t>(kind)));
}
std::string plain() { return piece("<unk>", 0, 2) + piece("</s>", 0, 3) + piece("a", -1) + piece("<0x41>", -2, 6); }

// A table of 256 units of which the first `unit` decides, and one text.
std::string normalized_by(uint32_t unit, uint32_t trie = 1024, const std::string& texts = std::string("x\0", 2)) {
  std::string map(4 + 1024, '\0');
  std::memcpy(map.data(), &trie, 4);
  std::memcpy(map.data() + 4, &unit, 4);
  return plain() + field(3, field(2, map + texts));
}

std::string refusal(const std::string& model) {
  return scratch::message_of<DataError>([&] { (void)look_through_piece_model(model, "a.model"); });
}

}  // namespace

TEST_CASE("a model's pieces are counted by kind", "[piece_model]") {
  const PieceModelFacts facts = look_through_piece_model(plain() + field(2, "any trainer"), "a.model");
  CHECK((facts.pieces == 4 && facts.unknown == 1 && facts.control == 1 && facts.bytes == 1));
  CHECK(look_through_piece_model(normalized_by(0), "a.model").pieces == 4);
  CHECK(look_through_piece_model(normalized_by(1U << 8 | 3U << 10), "a.model").pieces == 4);  // a leaf of value 0
}

TEST_CASE("a damaged model is refused before the library reads it", "[piece_model]") {
  CHECK_THAT(refusal(""), Contains("a.model: not a model of SentencePiece: it holds no piece"));
  CHECK_THAT(refusal("what the miller said"), Contains("a.model: not a model of SentencePiece, or a damaged one"));
  const std::string whole = plain();
  for (size_t size = 1; size < whole.size(); ++size) {
    CAPTURE(size);
    const std::string cut = whole.substr(0, size);
    // Cut between two pieces it is a shorter model.
    if (size == piece("<unk>", 0, 2).size() || size == (piece("<unk>", 0, 2) + piece("</s>", 0, 3)).size() ||
        size == whole.size() - piece("<0x41>", -2, 6).size())
      CHECK(look_through_piece_model(cut, "a.model").pieces > 0);
    else CHECK_THAT(refusal(cut), Contains("damaged"));
  }
  CHECK_THAT(refusal(plain() + piece("a", -3)), Contains("damaged"));  // twice
  CHECK_THAT(refusal(plain() + piece("", -3)), Contains("damaged"));
  CHECK_THAT(refusal(plain() + piece("b\xFF", -3)), Contains("damaged"));
  CHECK_THAT(refusal(plain() + piece(std::string("b\0", 2), -3)), Contains("damaged"));
  CHECK_THAT(refusal(plain() + piece("b", std::nanf(""))), Contains("damaged"));
  CHECK_THAT(refusal(plain() + piece("b", -3, 9)), Contains("damaged"));
  CHECK_THAT(refusal(plain() + field(1, varint(1 << 3) + varint(7))), Contains("damaged"));  // a number for a text
  CHECK_THAT(refusal(piece("a", -1)), Contains("one piece for what is unknown, this has 0"));
  CHECK_THAT(refusal(plain() + piece("b", 0, 2)), Contains("this has 2"));
}

TEST_CASE("a table of normalisation that leads out of itself is refused", "[piece_model]") {
  CHECK_THAT(refusal(normalized_by(256U << 10)), Contains("damaged"));    // children behind the last unit
  CHECK_THAT(refusal(normalized_by(0, 1020)), Contains("damaged"));       // no whole blocks
  CHECK_THAT(refusal(normalized_by(0, 4096)), Contains("damaged"));       // longer than the table
  CHECK_THAT(refusal(normalized_by(0, 1024, "x")), Contains("damaged"));  // a text without its end
  std::string model = normalized_by(1U << 8 | 1U << 10);                  // a leaf at unit 1, of value 2
  const uint32_t value = 2;
  std::memcpy(model.data() + model.size() - 2 - 1024 + 4, &value, 4);
  CHECK_THAT(refusal(model), Contains("damaged"));
}

}  // namespace xformer::piece_model_test
