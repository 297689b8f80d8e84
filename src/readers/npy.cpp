#include "readers/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "core/text.h"
#include "readers/lfs_pointer.h"

namespace xformer::readers::npy {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxHeaderBytes = 65536;  // ours has about 120; NumPy itself stops at 10,000
constexpr std::string_view kTypes = "f4, f8, i1 to i8, u1 to u8, b1 and U (text of a fixed width)";

struct Header {
  std::string type;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

// The dictionary as NumPy writes it, and nothing else that Python would take.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {}

  Header parse() {
    std::optional<std::string> type;
    std::optional<bool> fortran_order;
    std::optional<std::vector<int64_t>> shape;
    expect('{');
    while (!accept('}')) {
      const std::string key = string("a key");
      expect(':');
      const auto fresh = [&](const auto& value) {
        XF_CHECK(!value.has_value(), DataError, "{}: the header has {} twice", origin_, xformer::quoted(key));
      };
      if (key == "descr") {
        fresh(type);
        XF_CHECK(peek() != '[', DataError, "{}: a structured array (records with fields); expected one of {}", origin_,
                 kTypes);
        type = string("a type");
      } else if (key == "fortran_order") {
        fresh(fortran_order);
        fortran_order = boolean();
      } else if (key == "shape") {
        fresh(shape);
        shape = tuple();
      } else {
        throw DataError(fmt::format("{}: expected descr, fortran_order and shape in the header, found {}", origin_,
                                    xformer::quoted(key)));
      }
      if (accept(',')) continue;
      expect('}');
      break;
    }
    skip_blanks();
    XF_CHECK(at_ == text_.size(), DataError, "{}: expected blanks after the header's dictionary, found {}", origin_,
             quoted(text_.substr(at_)));
    for (const auto& [name, found] : {std::pair("descr", type.has_value()),
                                      {"fortran_order", fortran_order.has_value()},
                                      {"shape", shape.has_value()}})
      XF_CHECK(found, DataError, "{}: the header lacks {}", origin_, name);
    return {*type, *fortran_order, *shape};
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  char peek() {
    skip_blanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char letter) {
    if (peek() != letter || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  void expect(char letter) {
    if (!accept(letter)) refuse(fmt::format("'{}'", letter));
  }
  [[noreturn]] void refuse(std::string_view wanted) {
    throw DataError(fmt::format("{}: expected {} at byte {} of the header, found {}", origin_, wanted, at_ + 1,
                                at_ == text_.size() ? "its end" : quoted(text_.substr(at_, 20))));
  }
  std::string string(std::string_view what) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') refuse(fmt::format("{} in quotes", what));
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) refuse(fmt::format("{} whose quote is closed", what));
    const std::string_view word = text_.substr(at_ + 1, end - at_ - 1);
    if (word.find('\\') != std::string_view::npos) refuse(fmt::format("{} without '\\'", what));
    at_ = end + 1;
    return std::string(word);
  }
  bool boolean() {
    skip_blanks();
    for (const auto& [word, value] : {std::pair(std::string_view("True"), true), {"False", false}})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    refuse("True or False");
  }
  // "()", "(3,)" or "(3, 4)"; Python 2 wrote "(3L, 4L)".
  std::vector<int64_t> tuple() {
    std::vector<int64_t> sizes;
    expect('(');
    bool comma = true;
    while (!accept(')')) {
      if (!comma) refuse("',' or ')'");
      skip_blanks();
      int64_t size = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), size);
      if (error != std::errc{} || size < 0) refuse("a size from 0 to 2^63-1");
      at_ = static_cast<size_t>(end - text_.data());
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;
      sizes.push_back(size);
      comma = accept(',');
    }
    if (sizes.size() == 1 && !comma) refuse("a tuple, as in (3,), before this");
    return sizes;
  }

  std::string_view text_;
  const std::string& origin_;
  size_t at_ = 0;
};

struct Type {
  char kind = 'f';  // f, i, u, b, U
  size_t bytes = 0;
  bool big_endian = false;
};

Type parse_type(const std::string& text, const std::string& origin) {
  XF_CHECK(text.find('O') == std::string::npos, DataError,
           "{}: dtype {} holds Python objects, that is a pickle, which is never executed; save it again as numbers or "
           "as text: np.save(file, array.astype(str))",
           origin, xformer::quoted(text));
  const auto unknown = [&] {
    return DataError(
        fmt::format("{}: dtype {} is not read here; expected one of {}", origin, xformer::quoted(text), kTypes));
  };
  constexpr size_t kUnit = 4;  // bytes of a character of U
  size_t count = 0;
  if (text.size() < 3 || std::string_view("<>|=").find(text[0]) == std::string_view::npos) throw unknown();
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), count);
  if (error != std::errc{} || end != text.data() + text.size()) throw unknown();
  const bool power = count == 1 || count == 2 || count == 4 || count == 8;
  switch (text[1]) {
    case 'f':
      if (count != 4 && count != 8) throw unknown();
      break;
    case 'i':
    case 'u':
      if (!power) throw unknown();
      break;
    case 'b':
      if (count != 1) throw unknown();
      break;
    case 'U':
      if (count == 0 || count > std::numeric_limits<size_t>::max() / kUnit) throw unknown();
      count *= kUnit;
      break;
    default:
      throw unknown();
  }
  XF_CHECK(count == 1 || text[0] != '|', DataError, "{}: dtype {} lacks a byte order; expected '<' or '>'", origin,
           xformer::quoted(text));
  return {text[1], count, text[0] == '>'};
}

uint64_t unsigned_at(const std::byte* bytes, size_t count, bool big_endian) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i)
    value |= uint64_t{std::to_integer<uint8_t>(bytes[i])} << (8 * (big_endian ? count - 1 - i : i));
  return value;
}

double number_at(const std::byte* bytes, const Type& type, const std::string& origin, uint64_t element) {
  constexpr uint64_t kExact = uint64_t{1} << 53;
  const uint64_t bits = unsigned_at(bytes, type.bytes, type.big_endian);
  if (type.kind == 'f')
    return type.bytes == 8 ? std::bit_cast<double>(bits)
                           : static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  if (type.kind == 'b') {
    XF_CHECK(bits <= 1, DataError, "{}: expected 0 or 1 in element {} of truth values, found {}", origin, element + 1,
             bits);
    return static_cast<double>(bits);
  }
  const size_t unused = 64 - 8 * type.bytes;
  const auto whole = static_cast<int64_t>(bits << unused) >> unused;  // with the sign, where there is one
  const bool negative = type.kind == 'i' && whole < 0;
  const uint64_t magnitude = negative ? uint64_t{0} - static_cast<uint64_t>(whole) : bits;
  XF_CHECK(magnitude <= kExact, DataError,
           "{}: expected whole numbers of at most 2^53 in size, found {}{} in element {}", origin, negative ? "-" : "",
           magnitude, element + 1);
  return negative ? -static_cast<double>(magnitude) : static_cast<double>(magnitude);
}

void append_utf8(std::string& text, uint32_t point) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | ((point >> shift) & 0x3F)); };
  if (point < 0x80) {
    text += static_cast<char>(point);
  } else if (point < 0x800) {
    text += static_cast<char>(0xC0 | (point >> 6));
    tail(0);
  } else if (point < 0x10000) {
    text += static_cast<char>(0xE0 | (point >> 12));
    tail(6), tail(0);
  } else {
    text += static_cast<char>(0xF0 | (point >> 18));
    tail(12), tail(6), tail(0);
  }
}

// Characters of four bytes, filled up with zeros at the end.
std::string text_at(const std::byte* bytes, const Type& type, const std::string& origin, uint64_t element) {
  const auto character = [&](size_t i) {
    return static_cast<uint32_t>(unsigned_at(bytes + 4 * i, 4, type.big_endian));
  };
  size_t length = type.bytes / 4;
  while (length > 0 && character(length - 1) == 0) --length;
  std::string text;
  for (size_t i = 0; i < length; ++i) {
    const uint32_t point = character(i);
    XF_CHECK(point <= 0x10FFFF && (point < 0xD800 || point > 0xDFFF), DataError,
             "{}: expected Unicode characters, found the number {:#x} in element {}", origin, point, element + 1);
    append_utf8(text, point);
  }
  return text;
}

// The elements row by row; `decode` is called with an element's bytes and its number in the file.
template <class Element, class Decode>
std::vector<Element> elements_of(const std::byte* data, const Header& header, size_t bytes, const Decode& decode) {
  const auto rows = static_cast<uint64_t>(header.shape[0]);
  const auto columns = header.shape.size() == 2 ? static_cast<uint64_t>(header.shape[1]) : 1;
  std::vector<Element> result;
  result.reserve(rows * columns);
  for (uint64_t row = 0; columns > 0 && row < rows; ++row)
    for (uint64_t column = 0; column < columns; ++column) {
      const uint64_t element = header.fortran_order ? column * rows + row : row * columns + column;
      result.push_back(decode(data + element * bytes, element));
    }
  return result;
}

// Where a file's elements lie, and what they are.
struct Layout {
  Header header;
  Type type;
  const std::byte* data = nullptr;
};

Layout layout_of(std::span<const std::byte> file, const std::string& origin) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  refuse_lfs_pointer(file, origin);
  XF_CHECK(text.starts_with(kMagic), DataError, "{}: a .npy file begins with {}, this one with {}", origin,
           quoted(kMagic), quoted(text.substr(0, kMagic.size())));
  const auto cut = [&](std::string_view what) {
    return DataError(fmt::format("{}: the file is cut off: {} bytes end inside its {}", origin, file.size(), what));
  };
  if (file.size() < kMagic.size() + 2) throw cut("version");
  const auto major = std::to_integer<int>(file[kMagic.size()]), minor = std::to_integer<int>(file[kMagic.size() + 1]);
  XF_CHECK(major >= 1 && major <= 3 && minor == 0, DataError,
           "{}: expected version 1.0, 2.0 or 3.0 of .npy, found {}.{}", origin, major, minor);
  const size_t length_bytes = major == 1 ? 2 : 4, begin = kMagic.size() + 2 + length_bytes;
  if (file.size() < begin) throw cut("header's length");
  const uint64_t length = unsigned_at(file.data() + kMagic.size() + 2, length_bytes, false);
  XF_CHECK(length <= kMaxHeaderBytes, DataError, "{}: the header claims {} bytes, at most {} are read", origin, length,
           kMaxHeaderBytes);
  if (length > file.size() - begin) throw cut("header");

  Header header = HeaderParser(text.substr(begin, length), origin).parse();
  const Type type = parse_type(header.type, origin);
  XF_CHECK(header.shape.size() == 1 || header.shape.size() == 2, DataError,
           "{}: expected an array of one or two dimensions, found shape ({})", origin, fmt::join(header.shape, ", "));
  const size_t available = file.size() - begin - length;
  uint64_t expected = type.bytes;
  for (const int64_t size : header.shape)
    XF_CHECK(!__builtin_mul_overflow(expected, static_cast<uint64_t>(size), &expected), DataError,
             "{}: shape ({}) of {} has more than 2^64 bytes", origin, fmt::join(header.shape, ", "), header.type);
  XF_CHECK(available == expected, DataError, "{}: shape ({}) of {} needs {} bytes of elements, {} are there", origin,
           fmt::join(header.shape, ", "), header.type, expected, available);

  return {std::move(header), type, file.data() + begin + length};
}

}  // namespace

Array parse(std::span<const std::byte> file, const std::string& origin) {
  const auto [header, type, data] = layout_of(file, origin);
  Array array{header.type, header.shape, {}};
  if (type.kind == 'U')
    array.values = elements_of<std::string>(
        data, header, type.bytes,
        [&, &type = type](const std::byte* bytes, uint64_t element) { return text_at(bytes, type, origin, element); });
  else
    array.values =
        elements_of<double>(data, header, type.bytes, [&, &type = type](const std::byte* bytes, uint64_t element) {
          return number_at(bytes, type, origin, element);
        });
  return array;
}

Array read(const Path& path) {
  const MappedFile file(path);
  return parse(file.bytes(), path.string());
}

struct NumberFile::Opened {
  MappedFile file;
  std::string origin;
  Layout layout;
  uint64_t rows = 0, columns = 1;

  explicit Opened(const Path& path) : file(path), origin(path.string()), layout(layout_of(file.bytes(), origin)) {
    rows = static_cast<uint64_t>(layout.header.shape[0]);
    if (layout.header.shape.size() == 2) columns = static_cast<uint64_t>(layout.header.shape[1]);
  }
};

NumberFile::NumberFile(const Path& path) : opened_(std::make_unique<const Opened>(path)) {
  const Layout& layout = opened_->layout;
  XF_CHECK(layout.type.kind != 'U', DataError, "{}: expected numbers, found text ({})", opened_->origin,
           layout.header.type);
}

NumberFile::~NumberFile() = default;

int64_t NumberFile::rows() const { return static_cast<int64_t>(opened_->rows); }
int64_t NumberFile::columns() const { return static_cast<int64_t>(opened_->columns); }

double NumberFile::operator[](size_t i) const {
  const auto& [file, origin, layout, rows, columns] = *opened_;
  const uint64_t element = layout.header.fortran_order ? i % columns * rows + i / columns : i;
  return number_at(layout.data + element * layout.type.bytes, layout.type, origin, element);
}

}  // namespace xformer::readers::npy
