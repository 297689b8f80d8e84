// The safetensors header, read with a state machine over JSON events: nothing is built that the format does
// not have, so neither deep nesting nor repeated keys can cost memory or hide an entry.
#include "readers/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "readers/lfs_pointer.h"

namespace xformer::readers {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr uint64_t kLengthBytes = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

constexpr std::array<std::pair<std::string_view, size_t>, 19> kTypes = {{
    {"BOOL", 1},        {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1},
    {"F8_E5M2FNUZ", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},     {"BF16", 2},    {"I32", 4},     {"U32", 4},
    {"F32", 4},         {"C64", 8}, {"F64", 8}, {"I64", 8},     {"U64", 8},
}};

// Where in the header the parser is; each place takes exactly one kind of value.
enum class Place {
  kStart,
  kNames,
  kMetadataOrTensor,
  kMetadata,
  kMetadataValue,
  kFields,
  kType,
  kShape,
  kShapeItems,
  kOffsets,
  kOffsetItems,
  kEnd
};

std::string_view expectation(Place place) {
  switch (place) {
    case Place::kStart:
      return "an object";
    case Place::kNames:
      return "a tensor's name";
    case Place::kMetadataOrTensor:
      return "an object with dtype, shape and data_offsets";
    case Place::kMetadata:
      return "a key of __metadata__";
    case Place::kMetadataValue:
      return "text";
    case Place::kFields:
      return "one of dtype, shape and data_offsets";
    case Place::kType:
      return "the name of a type";
    case Place::kShape:
      return "a list of sizes";
    case Place::kShapeItems:
      return "a size from 0 to 2^63-1";
    case Place::kOffsets:
      return "a list of two offsets";
    case Place::kOffsetItems:
      return "two offsets that are not negative";
    case Place::kEnd:
      return "nothing more";
  }
  return "?";
}

class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const std::string& origin) : origin_(origin) {}

  SafetensorsHeader header;

  bool null() override {
    // The reference takes it for absent metadata.
    if (place_ != Place::kMetadataOrTensor || entry_.name != kMetadataKey) return refuse("null");
    place_ = Place::kNames;
    return true;
  }
  bool boolean(bool) override { return refuse("true or false"); }
  bool number_integer(number_integer_t value) override { return refuse(fmt::format("{}", value)); }
  bool number_float(number_float_t, const string_t& text) override { return refuse(xformer::quoted(text)); }
  bool binary(binary_t&) override { return refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShapeItems && value <= std::numeric_limits<int64_t>::max()) {
      entry_.shape.push_back(static_cast<int64_t>(value));
    } else if (place_ == Place::kOffsetItems && offsets_ < 2) {
      (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    } else {
      return refuse(fmt::format("{}", value));
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadataValue) {
      header.metadata.at(key_) = value;
      place_ = Place::kMetadata;
    } else if (place_ == Place::kType) {
      XF_CHECK(bytes_per_element(value) > 0, DataError, "{}: tensor {} has the unknown type {}", origin_,
               xformer::quoted(entry_.name), xformer::quoted(value));
      entry_.type = value;
      place_ = Place::kFields;
    } else {
      return refuse(xformer::quoted(value));
    }
    return true;
  }

  bool key(string_t& value) override {
    if (place_ == Place::kNames) {
      XF_CHECK(names_.insert(value).second, DataError, "{}: the header names {} twice", origin_,
               xformer::quoted(value));
      entry_ = {};
      entry_.name = value;
      place_ = Place::kMetadataOrTensor;
    } else if (place_ == Place::kMetadata) {
      XF_CHECK(header.metadata.emplace(value, "").second, DataError, "{}: __metadata__ has the key {} twice", origin_,
               xformer::quoted(value));
      key_ = value;
      place_ = Place::kMetadataValue;
    } else {
      return field(value);
    }
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kNames;
    } else if (place_ == Place::kMetadataOrTensor) {
      fields_.clear();
      place_ = entry_.name == kMetadataKey ? Place::kMetadata : Place::kFields;
    } else {
      return refuse("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kFields) {
      for (const char* const name : {"dtype", "shape", "data_offsets"})
        XF_CHECK(fields_.contains(name), DataError, "{}: tensor {} has no {}", origin_, xformer::quoted(entry_.name),
                 name);
      header.tensors.push_back(std::move(entry_));
    }
    place_ = place_ == Place::kNames ? Place::kEnd : Place::kNames;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ == Place::kShape) {
      place_ = Place::kShapeItems;
    } else if (place_ == Place::kOffsets) {
      place_ = Place::kOffsetItems;
      offsets_ = 0;
    } else {
      return refuse("a list");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsetItems && offsets_ != 2) return refuse(fmt::format("{}", offsets_));
    place_ = Place::kFields;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& problem) override {
    throw DataError(fmt::format("{}: the header is not valid JSON at its byte {}: {}", origin_, position,
                                xformer::quoted(problem.what(), 200)));
  }

 private:
  bool field(const std::string& name) {
    XF_CHECK(fields_.insert(name).second, DataError, "{}: tensor {} has {} twice", origin_,
             xformer::quoted(entry_.name), xformer::quoted(name));
    if (name == "dtype") place_ = Place::kType;
    else if (name == "shape") place_ = Place::kShape;
    else if (name == "data_offsets") place_ = Place::kOffsets;
    else return refuse(xformer::quoted(name));
    return true;
  }

  [[noreturn]] bool refuse(const std::string& what) const {
    const std::string where = place_ == Place::kStart ? "" : fmt::format(" for {}", xformer::quoted(entry_.name));
    throw DataError(fmt::format("{}: the header{} should have {}, not {}", origin_, where, expectation(place_), what));
  }

  const std::string& origin_;
  Place place_ = Place::kStart;
  TensorEntry entry_;
  std::string key_;
  std::set<std::string> names_, fields_;
  int offsets_ = 0;
};

// Names and metadata of this program; JSON cannot hold them unless they are UTF-8.
std::string json_text(const Json& value) {
  try {
    return value.dump();
  } catch (const Json::exception& problem) {
    throw InternalError(
        fmt::format("a safetensors header cannot hold this text: {}", xformer::quoted(problem.what(), 200)));
  }
}

// The bytes a shape needs. The product is taken from left to right and every step must fit, as the
// reference does: a zero further right does not excuse an overflow.
uint64_t bytes_of_shape(const TensorEntry& entry, const std::string& origin) {
  uint64_t bytes = 1;
  bool fits = true;
  for (const int64_t size : entry.shape)
    fits = fits && !__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes);
  fits = fits && !__builtin_mul_overflow(bytes, uint64_t{bytes_per_element(entry.type)}, &bytes);
  XF_CHECK(fits, DataError, "{}: the size of tensor {} overflows 64 bits (shape {})", origin,
           xformer::quoted(entry.name), fmt::join(entry.shape, " x "));
  return bytes;
}

void check_ranges(const SafetensorsHeader& header, uint64_t data_bytes, const std::string& origin) {
  uint64_t covered = 0;
  for (const TensorEntry& entry : header.tensors) {
    const std::string name = xformer::quoted(entry.name);
    XF_CHECK(entry.begin <= entry.end, DataError, "{}: tensor {} ends at byte {}, before its begin {}", origin, name,
             entry.end, entry.begin);
    XF_CHECK(entry.begin >= covered, DataError, "{}: tensor {} begins at byte {}, inside the tensor before it", origin,
             name, entry.begin);
    XF_CHECK(entry.begin == covered, DataError, "{}: bytes {} to {} before tensor {} belong to no tensor", origin,
             covered, entry.begin, name);
    const uint64_t needed = bytes_of_shape(entry, origin);
    XF_CHECK(entry.end - entry.begin == needed, DataError, "{}: tensor {} has {} bytes, but {} of shape [{}] need {}",
             origin, name, entry.end - entry.begin, entry.type, fmt::join(entry.shape, ", "), needed);
    covered = entry.end;
  }
  const auto cut = std::find_if(header.tensors.begin(), header.tensors.end(),
                                [&](const TensorEntry& entry) { return entry.end > data_bytes; });
  XF_CHECK(cut == header.tensors.end(), DataError,
           "{}: the file is cut off: its tensors need {} bytes of data, {} are there, which end in tensor {}", origin,
           covered, data_bytes, xformer::quoted(cut->name));
  XF_CHECK(covered == data_bytes, DataError, "{}: {} bytes after the last tensor belong to no tensor", origin,
           data_bytes - covered);
}

}  // namespace

size_t bytes_per_element(const std::string& type) {
  for (const auto& [name, bytes] : kTypes)
    if (name == type) return bytes;
  return 0;
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& origin) {
  refuse_lfs_pointer(file, origin);
  XF_CHECK(file.size() >= kLengthBytes, DataError,
           "{}: a safetensors file begins with the {} bytes of its header's length, this one has {} bytes", origin,
           kLengthBytes, file.size());
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length |= static_cast<uint64_t>(file[i]) << (8 * i);
  XF_CHECK(length <= kMaxHeaderBytes, DataError, "{}: the header claims {} bytes, at most {} are allowed", origin,
           length, kMaxHeaderBytes);
  XF_CHECK(length <= file.size() - kLengthBytes, DataError,
           "{}: the header claims {} bytes, the file has {} after the length", origin, length,
           file.size() - kLengthBytes);
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  XF_CHECK(text.starts_with('{'), DataError, "{}: the header begins with {}, not with '{{'", origin,
           xformer::quoted(text.substr(0, 8)));
  // The JSON parser takes a zero byte for the end of its input and would not see what follows.
  XF_CHECK(text.find('\0') == std::string_view::npos, DataError, "{}: the header holds a zero byte", origin);

  HeaderReader reader(origin);
  const bool whole = Json::sax_parse(text.begin(), text.end(), &reader);
  XF_ASSERT(whole, "the reader of safetensors headers stopped without an error");
  SafetensorsHeader header = std::move(reader.header);
  header.data_offset = kLengthBytes + length;
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const TensorEntry& left, const TensorEntry& right) {
    return std::pair(left.begin, left.end) < std::pair(right.begin, right.end);
  });
  check_ranges(header, file.size() - header.data_offset, origin);
  return header;
}

std::string write_safetensors_header(const SafetensorsHeader& header) {
  std::set<std::string_view> names;
  uint64_t covered = 0;
  std::string text = "{";
  if (!header.metadata.empty()) text += fmt::format("\"{}\":{}", kMetadataKey, json_text(header.metadata));
  for (const TensorEntry& entry : header.tensors) {
    XF_ASSERT(entry.name != kMetadataKey && names.insert(entry.name).second, "tensor name {} is free", entry.name);
    XF_ASSERT(bytes_per_element(entry.type) > 0, "tensor {} has type {}", entry.name, entry.type);
    XF_ASSERT(entry.begin == covered && entry.end - entry.begin == bytes_of_shape(entry, "new file"),
              "tensor {} lies at bytes {} to {}, after {}", entry.name, entry.begin, entry.end, covered);
    covered = entry.end;
    // Written piece by piece: an ordered JSON object would search all earlier names for each new one.
    if (text.size() > 1) text += ',';
    text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", json_text(entry.name),
                        entry.type, fmt::join(entry.shape, ","), entry.begin, entry.end);
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  XF_ASSERT(text.size() <= kMaxHeaderBytes, "a header of {} bytes", text.size());
  std::string result;
  for (size_t i = 0; i < kLengthBytes; ++i) result += static_cast<char>((uint64_t{text.size()} >> (8 * i)) & 0xFF);
  return result + text;
}

}  // namespace xformer::readers
