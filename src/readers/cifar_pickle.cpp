// The Python version of a CIFAR-10 batch. What a pickle of that layout consists of is written out here as a
// grammar, opcode by opcode (Python's pickletools documents them), so that no other pickle can even be parsed.
#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "readers/cifar.h"

namespace xformer::readers::cifar {
namespace {

constexpr uint8_t kProto = 0x80, kStop = '.', kMark = '(', kReduce = 'R', kBuild = 'b', kGlobal = 'c';
constexpr uint8_t kEmptyDict = '}', kSetItems = 'u', kEmptyList = ']', kAppend = 'a', kAppends = 'e';
constexpr uint8_t kTuple = 't', kTuple1 = 0x85, kTuple2 = 0x86, kTuple3 = 0x87;
constexpr uint8_t kNone = 'N', kTrue = 0x88, kFalse = 0x89, kInt1 = 'K', kInt2 = 'M', kInt4 = 'J';
constexpr uint8_t kShortBytes = 'U', kBytes = 'T', kUnicode = 'X';
constexpr uint8_t kPut = 'q', kLongPut = 'r', kGet = 'h', kLongGet = 'j';  // the memo

constexpr size_t kRowBytes = kChannels * kPixels;
constexpr size_t kLongestGlobal = 64;

// The four names that such a file refers to; they stand for places in the grammar and are never looked up.
enum class Name { kReconstruct, kArray, kType, kEncode };

struct Text {
  std::string_view bytes;
  bool unicode = false;
};

struct Batch {
  std::optional<std::vector<uint8_t>> labels;
  std::optional<std::string_view> data;
  size_t rows = 0;
  bool columns_first = false;  // Fortran's order
};

// Lives as long as what it parsed: the data may lie in text that it decoded.
class BatchParser {
 public:
  BatchParser(std::string_view bytes, const std::string& origin) : bytes_(bytes), origin_(origin) {}

  Batch parse() {
    expect(kProto, "a pickle of protocol 2");
    check(number(1) == 2, at_ - 1, "the protocol 2", "another one");
    expect(kEmptyDict, "a dict");
    skip_put();
    expect(kMark, "the entries of the dict");
    while (peek() != kSetItems) entry();
    expect(kSetItems, "the end of the dict");
    expect(kStop, "the end of the pickle");
    check(at_ == bytes_.size(), at_, "the end of the file", fmt::format("{} more bytes", bytes_.size() - at_));
    check(batch_.labels.has_value(), at_, "a dict with 'labels'", "none of that name");
    check(batch_.data.has_value(), at_, "a dict with 'data'", "none of that name");
    check(batch_.labels->size() == batch_.rows, at_, fmt::format("{} labels, one for each row of data", batch_.rows),
          fmt::format("{}", batch_.labels->size()));
    return std::move(batch_);
  }

 private:
  void entry() {
    const size_t begin = at_;
    const std::string key(text("a name of the dict").bytes.substr(0, kLongestGlobal));
    // Named in full: where <iomanip> is included, a std::string would mean std::quoted.
    check(keys_.insert(key).second, begin, "every name once", xformer::quoted(key) + " again");
    if (key == "labels") labels();
    else if (key == "data") array();
    else if (key == "filenames") filenames();
    else if (key == "batch_label") (void)text("the batch's label");
    else refuse(begin, "'batch_label', 'labels', 'data' or 'filenames'", xformer::quoted(key));
  }

  void labels() {
    batch_.labels.emplace();
    expect(kEmptyList, "the list of labels");
    skip_put();
    const auto label = [&] {
      const size_t begin = at_;
      const int64_t value = integer("a label");
      const size_t record = batch_.labels->size() + 1;
      check(value >= 0 && value < kClasses, begin,
            fmt::format("a label from 0 to {} for record {}", kClasses - 1, record), fmt::format("{}", value));
      batch_.labels->push_back(static_cast<uint8_t>(value));
    };
    while (true) {  // a thousand at a time; a single one that is left over has an opcode of its own
      if (accept(kMark)) {
        while (!accept(kAppends)) label();
      } else if (peek() == kInt1 || peek() == kInt2 || peek() == kInt4) {
        label();
        expect(kAppend, "the label's place in the list");
      } else {
        return;
      }
    }
  }

  void filenames() {
    expect(kEmptyList, "the list of file names");
    skip_put();
    while (true) {
      if (accept(kMark)) {
        while (!accept(kAppends)) (void)text("a file name");
        continue;
      }
      if (peek() == kSetItems) return;
      // A text is the single one that is left over, or the dict's next name.
      const size_t begin = at_;
      (void)text("a file name");
      if (accept(kAppend)) continue;
      at_ = begin;
      return;
    }
  }

  // numpy.core.multiarray._reconstruct(numpy.ndarray, (0,), 'b'), then its state.
  void array() {
    name(Name::kReconstruct, "an array of NumPy");
    name(Name::kArray, "the array's class");
    exactly(0, "the array's first shape");
    expect(kTuple1, "a tuple of one");
    skip_put();
    exactly("b", "the array's first type");
    expect(kTuple3, "a tuple of three");
    skip_put();
    expect(kReduce, "the array");
    skip_put();

    expect(kMark, "the array's state");
    exactly(1, "the state's version");
    const size_t shape = at_;
    const int64_t rows = integer("the number of images");
    check(rows > 0, shape, "at least one image", fmt::format("{}", rows));
    batch_.rows = static_cast<size_t>(rows);
    exactly(static_cast<int64_t>(kRowBytes), "the number of bytes of an image");
    expect(kTuple2, "a tuple of two");
    skip_put();
    type();
    batch_.columns_first = flag("whether the array lies in Fortran's order");
    const size_t begin = at_;
    const Text data = text("the array's bytes");
    check(!data.unicode, begin, "bytes", "text");
    check(data.bytes.size() % kRowBytes == 0 && data.bytes.size() / kRowBytes == batch_.rows, begin,
          fmt::format("{} bytes for each of {} images", kRowBytes, batch_.rows),
          fmt::format("{} bytes", data.bytes.size()));
    batch_.data = data.bytes;
    expect(kTuple, "the end of the array's state");
    skip_put();
    expect(kBuild, "the array's state to be set");
  }

  // numpy.dtype('u1', False, True), then its state (3, '|', None, None, None, -1, -1, 0).
  void type() {
    name(Name::kType, "the array's type");
    exactly("u1", "the type of bytes");
    check(!flag("0, whether the type is aligned"), at_ - 1, "0", "1");
    check(flag("1, whether the type is copied"), at_ - 1, "1", "0");
    expect(kTuple3, "a tuple of three");
    skip_put();
    expect(kReduce, "the type");
    skip_put();
    expect(kMark, "the type's state");
    exactly(3, "the version of the type's state");
    exactly("|", "a type without byte order");
    for (int i = 0; i < 3; ++i) expect(kNone, "None in the type's state");
    exactly(-1, "the type's size");
    exactly(-1, "the type's alignment");
    exactly(0, "the type's flags");
    expect(kTuple, "the end of the type's state");
    skip_put();
    expect(kBuild, "the type's state to be set");
  }

  void exactly(int64_t value, const char* what) {
    const size_t begin = at_;
    const int64_t found = integer(what);
    check(found == value, begin, fmt::format("{}, {}", what, value), fmt::format("{}", found));
  }

  void exactly(std::string_view value, const char* what) {
    const size_t begin = at_;
    const Text found = text(what);
    check(found.bytes == value, begin, fmt::format("{}, {}", what, xformer::quoted(value)),
          xformer::quoted(found.bytes));
  }

  int64_t integer(const char* what) {
    const size_t begin = at_;
    if (accept(kInt1)) return number(1);
    if (accept(kInt2)) return number(2);
    if (accept(kInt4)) return static_cast<int32_t>(static_cast<uint32_t>(number(4)));
    refuse(begin, what);
  }

  // NumPy wrote numbers before it wrote truth values.
  bool flag(const char* what) {
    if (accept(kTrue)) return true;
    if (accept(kFalse)) return false;
    const size_t begin = at_;
    const int64_t value = integer(what);
    check(value == 0 || value == 1, begin, fmt::format("{}: 0 or 1", what), fmt::format("{}", value));
    return value == 1;
  }

  // A text of Python 2 or 3, or bytes as Python 3 writes them: _codecs.encode(text, 'latin1').
  Text text(const char* what) {
    const size_t begin = at_;
    Text result;
    if (accept(kShortBytes)) {
      result = {take(static_cast<size_t>(number(1))), false};
    } else if (accept(kBytes)) {
      result = {take(static_cast<size_t>(number(4))), false};
    } else if (accept(kUnicode)) {
      result = {take(static_cast<size_t>(number(4))), true};
    } else if (peek() == kGlobal) {
      name(Name::kEncode, what);
      result = encoded();
    } else if (peek() == kGet || peek() == kLongGet) {
      const Kept kept = get(what);
      if (const Text* known = std::get_if<Text>(&kept)) return *known;
      check(std::get<Name>(kept) == Name::kEncode, begin, what, "the memo of another thing");
      result = encoded();
    } else {
      refuse(begin, what);
    }
    put(result);
    return result;
  }

  Text encoded() {
    const size_t begin = at_;
    // One within another would be as deep as the file is long.
    check(!std::exchange(encoding_, true), begin, "plain text to be encoded", "another encoding");
    const Text source = text("text to be encoded");
    check(source.unicode, begin, "text to be encoded", "bytes");
    exactly("latin1", "the name of an encoding");
    expect(kTuple2, "a tuple of two");
    skip_put();
    expect(kReduce, "the bytes of a text");
    // A memo could be encoded again and again.
    decoded_bytes_ += source.bytes.size();
    check(decoded_bytes_ <= bytes_.size(), begin, "every text encoded once", "the same again");
    std::string& bytes = decoded_.emplace_back();
    bytes.reserve(source.bytes.size());
    for (size_t i = 0; i < source.bytes.size(); ++i) {
      auto byte = static_cast<uint8_t>(source.bytes[i]);
      if (byte >= 0x80) {
        const uint8_t next = i + 1 < source.bytes.size() ? static_cast<uint8_t>(source.bytes[i + 1]) : uint8_t{0};
        if ((byte != 0xC2 && byte != 0xC3) || (next & 0xC0) != 0x80)
          refuse(begin, "UTF-8 of characters up to 255", fmt::format("others at byte {} of the text", i));
        byte = static_cast<uint8_t>(((byte & 0x03) << 6) | (next & 0x3F));
        ++i;
      }
      bytes += static_cast<char>(byte);
    }
    encoding_ = false;
    return {bytes, false};
  }

  void name(Name expected, const char* what) {
    const size_t begin = at_;
    expect(kGlobal, what);
    const std::string_view module = line(), member = line();
    static constexpr std::array<std::tuple<std::string_view, std::string_view, Name>, 5> kNames{{
        {"numpy.core.multiarray", "_reconstruct", Name::kReconstruct},
        {"numpy._core.multiarray", "_reconstruct", Name::kReconstruct},  // NumPy 2
        {"numpy", "ndarray", Name::kArray},
        {"numpy", "dtype", Name::kType},
        {"_codecs", "encode", Name::kEncode},
    }};
    const bool right = std::any_of(kNames.begin(), kNames.end(),
                                   [&](const auto& known) { return known == std::tuple(module, member, expected); });
    check(right, begin, what, fmt::format("the name {}", xformer::quoted(fmt::format("{}.{}", module, member))));
    put(expected);
  }

  std::string_view line() {
    const size_t end = bytes_.substr(at_, kLongestGlobal).find('\n');
    check(end != std::string_view::npos, at_, "a name", "none that ends");
    const std::string_view result = bytes_.substr(at_, end);
    at_ += end + 1;
    return result;
  }

  // The memo: texts and names are kept; what other places hold is never asked for.
  using Kept = std::variant<Text, Name>;
  std::optional<uint32_t> put_index() {
    if (accept(kPut)) return static_cast<uint32_t>(number(1));
    if (accept(kLongPut)) return static_cast<uint32_t>(number(4));
    return std::nullopt;
  }
  void put(const Kept& value) {
    if (const auto index = put_index()) memo_[*index] = value;
  }
  void skip_put() {
    if (const auto index = put_index()) memo_.erase(*index);
  }
  Kept get(const char* what) {
    const size_t begin = at_;
    const auto index = static_cast<uint32_t>(accept(kGet) ? number(1) : (expect(kLongGet, what), number(4)));
    const auto found = memo_.find(index);
    check(found != memo_.end(), begin, what, fmt::format("the memo {}, which holds no text", index));
    return found->second;
  }

  [[nodiscard]] int peek() const { return at_ < bytes_.size() ? static_cast<uint8_t>(bytes_[at_]) : -1; }
  bool accept(uint8_t opcode) {
    if (peek() != opcode) return false;
    ++at_;
    return true;
  }
  void expect(uint8_t opcode, const char* what) {
    if (!accept(opcode)) refuse(at_, what);
  }

  std::string_view take(size_t count) {
    check(count <= bytes_.size() - at_, at_, fmt::format("{} bytes", count),
          fmt::format("the end of the file after {}", bytes_.size() - at_));
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  int64_t number(size_t bytes) {  // little-endian
    uint64_t value = 0;
    const std::string_view digits = take(bytes);
    for (size_t i = 0; i < bytes; ++i) value |= uint64_t{static_cast<uint8_t>(digits[i])} << (8 * i);
    return static_cast<int64_t>(value);
  }

  void check(bool condition, size_t at, std::string_view expected, std::string_view found) const {
    if (!condition) refuse(at, expected, found);
  }
  [[noreturn]] void refuse(size_t at, std::string_view expected) const {
    if (at >= bytes_.size()) refuse(at, expected, "the end of the file");
    const auto opcode = static_cast<uint8_t>(bytes_[at]);
    const bool printable = opcode > ' ' && opcode < 0x7F;
    refuse(at, expected,
           fmt::format("the opcode 0x{:02x}{}", opcode,
                       printable ? fmt::format(" '{}'", static_cast<char>(opcode)) : std::string()));
  }
  [[noreturn]] void refuse(size_t at, std::string_view expected, std::string_view found) const {
    throw DataError(
        fmt::format("{}: byte {}: expected {}, found {}: this is not a batch of CIFAR-10 as Python wrote it, and no "
                    "other pickle is "
                    "read",
                    origin_, at, expected, found));
  }

  std::string_view bytes_;
  const std::string& origin_;
  size_t at_ = 0;
  Batch batch_;
  std::set<std::string> keys_;
  std::unordered_map<uint32_t, Kept> memo_;
  std::deque<std::string> decoded_;
  size_t decoded_bytes_ = 0;
  bool encoding_ = false;  // inside _codecs.encode(...)
};

}  // namespace

int64_t read_python_batch(std::string_view bytes, const std::string& origin, const AddImage& add) {
  BatchParser parser(bytes, origin);
  const Batch batch = parser.parse();
  const auto* data = reinterpret_cast<const uint8_t*>(batch.data->data());
  std::vector<uint8_t> row(kRowBytes);
  for (size_t i = 0; i < batch.rows; ++i) {
    for (size_t j = 0; j < kRowBytes; ++j) row[j] = data[batch.columns_first ? j * batch.rows + i : i * kRowBytes + j];
    add((*batch.labels)[i], std::span<const uint8_t, kRowBytes>(row));
  }
  return static_cast<int64_t>(batch.rows);
}

}  // namespace xformer::readers::cifar
