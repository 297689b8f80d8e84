#include "readers/piece_model.h"

#include <cmath>
#include <cstring>
#include <set>

#include "core/error.h"
#include "core/utf8.h"

namespace xformer::readers {
namespace {

constexpr size_t kLongestPiece = 65'535;
enum WireType : uint32_t { kVarint = 0, kEight = 1, kBytes = 2, kFour = 5 };
// Numbers of fields: of the model, of a piece, of a normaliser; and kinds of pieces.
enum Field : uint32_t {
  kPieces = 1,
  kNormalizer = 3,
  kDenormalizer = 5,
  kText = 1,
  kScore = 2,
  kKind = 3,
  kCharsmap = 2
};
enum Kind : uint64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// The fields of one message, one after the other.
class Message {
 public:
  Message(std::string_view bytes, const std::string& origin) : bytes_(bytes), origin_(origin) {}

  uint32_t number = 0;
  WireType type = kVarint;
  uint64_t value = 0;      // of a number
  std::string_view bytes;  // of a text or a message

  bool next() {
    if (at_ == bytes_.size()) return false;
    const uint64_t key = varint();
    check(key >> 3 >= 1 && key >> 3 < (1U << 29));
    number = static_cast<uint32_t>(key >> 3);
    type = static_cast<WireType>(key & 7);
    check(type == kVarint || type == kEight || type == kBytes || type == kFour);
    if (type == kVarint) value = varint();
    else if (type == kBytes) bytes = take(varint());
    else {
      value = 0;
      const std::string_view fixed = take(type == kEight ? 8 : 4);
      std::memcpy(&value, fixed.data(), fixed.size());
    }
    return true;
  }
  void expect(WireType wanted) const { check(type == wanted); }
  void check(bool fits) const {
    XF_CHECK(fits, DataError, "{}: not a model of SentencePiece, or a damaged one (byte {} of {})", origin_, at_,
             bytes_.size());
  }

 private:
  uint64_t varint() {
    uint64_t result = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      check(at_ < bytes_.size());
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      result |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return result;
    }
    check(false);
    return 0;
  }
  std::string_view take(uint64_t size) {
    check(size <= bytes_.size() - at_);
    const std::string_view result = bytes_.substr(at_, size);
    at_ += size;
    return result;
  }

  std::string_view bytes_;
  const std::string& origin_;
  size_t at_ = 0;
};

uint32_t word(std::string_view bytes, size_t at) {
  uint32_t result = 0;
  std::memcpy(&result, bytes.data() + at, sizeof(result));
  return result;
}

// A table of normalisation: the size of a double-array trie (Aoe 1989) in bytes, its units of four bytes, and texts
// that end in a zero byte, at which its values point. A unit has a label or a value, and the distance to its children,
// which must be units of the trie whatever byte leads to them.
void check_charsmap(std::string_view map, const Message& message) {
  if (map.empty()) return;
  message.check(map.size() > 4);
  const uint32_t trie = word(map, 0);
  message.check(trie >= 1024 && trie % 1024 == 0 && trie < map.size() - 4);
  const std::string_view texts = map.substr(4 + trie);
  message.check(texts.back() == '\0');
  const uint32_t units = trie / 4;
  for (uint32_t i = 0; i < units; ++i) {
    const uint32_t unit = word(map, 4 + size_t{i} * 4);
    if (unit >> 31 != 0) continue;  // a value, or a unit that is not used: asked for below, by those that lead to it
    const uint32_t child = i ^ (unit >> 10) << ((unit & (1U << 9)) >> 6);
    message.check((child | 0xFF) < units);
    if ((unit >> 8 & 1) != 0) message.check((word(map, 4 + size_t{child} * 4) & 0x7FFFFFFF) < texts.size());
  }
}

struct Piece {
  std::string_view text;
  uint64_t kind = kNormal;
};

Piece read_piece(std::string_view bytes, const std::string& origin) {
  Piece piece;
  Message message(bytes, origin);
  while (message.next()) {
    if (message.number == kText) {
      message.expect(kBytes);
      piece.text = message.bytes;
    } else if (message.number == kScore) {
      message.expect(kFour);
      float score = 0;
      std::memcpy(&score, &message.value, sizeof(score));
      message.check(std::isfinite(score));
    } else if (message.number == kKind) {
      message.expect(kVarint);
      piece.kind = message.value;
    }
  }
  message.check(!piece.text.empty() && piece.text.size() <= kLongestPiece &&
                piece.text.find('\0') == std::string_view::npos &&
                first_damaged_byte(piece.text) == piece.text.size() && piece.kind >= kNormal && piece.kind <= kByte);
  return piece;
}

}  // namespace

PieceModelFacts look_through_piece_model(std::string_view file, const std::string& origin) {
  PieceModelFacts facts;
  std::set<std::string_view> texts;
  Message model(file, origin);
  while (model.next()) {
    if (model.number == kPieces) {
      model.expect(kBytes);
      const Piece piece = read_piece(model.bytes, origin);
      model.check(texts.insert(piece.text).second);
      ++facts.pieces;
      facts.unknown += piece.kind == kUnknown ? 1 : 0;
      facts.control += piece.kind == kControl ? 1 : 0;
      facts.bytes += piece.kind == kByte ? 1 : 0;
    } else if (model.number == kNormalizer || model.number == kDenormalizer) {
      model.expect(kBytes);
      Message normalizer(model.bytes, origin);
      while (normalizer.next())
        if (normalizer.number == kCharsmap) {
          normalizer.expect(kBytes);
          check_charsmap(normalizer.bytes, normalizer);
        }
    }
  }
  XF_CHECK(facts.pieces > 0, DataError, "{}: not a model of SentencePiece: it holds no piece", origin);
  XF_CHECK(facts.unknown == 1, DataError, "{}: a model of SentencePiece has one piece for what is unknown, this has {}",
           origin, facts.unknown);
  return facts;
}

}  // namespace xformer::readers
