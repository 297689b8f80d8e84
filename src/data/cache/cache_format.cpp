#include "data/cache/cache_format.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/file_operations.h"
#include "data/cache/cache.h"

namespace xformer::data::cache_format {
namespace {

static_assert(std::endian::native == std::endian::little, "the cache is mapped as it lies: little-endian machines");

constexpr char kMagic[8] = {'X', 'F', 'S', 'P', 'L', 'I', 'T', '\n'};
constexpr size_t kBufferBytes = size_t{1} << 20;

struct Header {
  char magic[8];
  uint32_t version;
  uint16_t unit, parts;
};
struct Trailer {
  uint64_t count;
  uint64_t units;
  char magic[8];
};

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <class T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

uint64_t round_up(uint64_t size, uint64_t to) { return (size + to - 1) / to * to; }

uint64_t bytes_in(const Part& part) { return static_cast<uint64_t>(element_bytes(part.field.element)); }

// Bytes of an element of the narrowest field with places.
uint64_t unit_of(const std::vector<Part>& parts) {
  uint64_t unit = 8;
  for (const Part& part : parts)
    if (part.field.of_tokens()) unit = std::min(unit, bytes_in(part));
  return unit;
}

// How many parts have no places; they come first.
uint64_t facts_of(const std::vector<Part>& parts) {
  return static_cast<uint64_t>(
      std::count_if(parts.begin(), parts.end(), [](const Part& part) { return !part.field.of_tokens(); }));
}

void hash_part(Sha256& hash, const Elements& elements) {
  hash.update(bytes_of(static_cast<uint32_t>(elements.size())));
  hash.update(elements.bytes());
}

}  // namespace

SplitWriter::SplitWriter(const Path& path, const DataShape& shape)
    : path_(path), parts_(parts_of(shape)), unit_(unit_of(parts_)) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) file_operations::fail("write", path, errno);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = static_cast<uint32_t>(kCacheVersion);
  header.unit = static_cast<uint16_t>(unit_);
  header.parts = static_cast<uint16_t>(parts_.size() - facts_of(parts_));
  write(bytes_of(header));
  written_ = 0;
}

SplitWriter::~SplitWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void SplitWriter::write(std::string_view bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  buffer_.append(bytes);
  written_ += bytes.size();
}

void SplitWriter::flush() {
  if (const int error = file_operations::write_all(descriptor_, buffer_); error != 0)
    file_operations::fail("write", path_, error);
  buffer_.clear();
}

void SplitWriter::pad(uint64_t to) { write(std::string(round_up(written_, to) - written_, '\0')); }

void SplitWriter::add(const Example& example) {
  ++count_;
  for (const Part& part : parts_) {
    if (!part.field.of_tokens()) {
      const double fact = part.fact(example);
      const bool number = part.field.element == Element::kF32;
      words_.push_back(number ? std::bit_cast<uint32_t>(static_cast<float>(fact))
                              : static_cast<uint32_t>(static_cast<int64_t>(fact)));
      hash_.update(bytes_of(words_.back()));
      continue;
    }
    const Elements elements = part.elements(example);
    hash_part(hash_, elements);
    pad(bytes_in(part));
    write(elements.bytes());
    offsets_.push_back(written_ / unit_);
  }
}

void SplitWriter::finish() {
  pad(8);
  write(bytes_of(offsets_));
  write(bytes_of(words_));
  pad(8);
  Trailer trailer{static_cast<uint64_t>(count_), offsets_.back(), {}};
  std::memcpy(trailer.magic, kMagic, sizeof kMagic);
  write(bytes_of(trailer));
  flush();
  if (const int error = file_operations::sync(descriptor_); error != 0) file_operations::fail("write", path_, error);
  if (::close(std::exchange(descriptor_, -1)) != 0) file_operations::fail("write", path_, errno);
}

SplitMap::SplitMap(const Path& path, int64_t version, const DataShape& shape)
    : file_(path),
      parts_(parts_of(shape)),
      unit_(unit_of(parts_)),
      facts_(facts_of(parts_)),
      sequences_(parts_.size() - facts_) {
  const std::span<const std::byte> bytes = file_.bytes();
  const std::string name = path.string();
  XF_CHECK(bytes.size() >= sizeof(Header) + sizeof(Trailer), DataError, "{} is cut off: it has {} bytes", name,
           bytes.size());
  Header header{};
  std::memcpy(&header, bytes.data(), sizeof header);
  XF_CHECK(std::memcmp(header.magic, kMagic, sizeof kMagic) == 0, DataError,
           "{} is damaged: it does not start as a packed split does", name);
  XF_CHECK(header.version == version, DataError, "{} has layout version {}, expected {}", name, header.version,
           version);
  XF_CHECK(header.unit == unit_ && header.parts == sequences_, DataError,
           "{} is damaged: its examples have {} parts in units of {} bytes, expected {} of {}", name, header.parts,
           header.unit, sequences_, unit_);
  Trailer trailer{};
  std::memcpy(&trailer, bytes.data() + bytes.size() - sizeof trailer, sizeof trailer);
  XF_CHECK(std::memcmp(trailer.magic, kMagic, sizeof kMagic) == 0, DataError,
           "{} is cut off: it does not end as a packed split does", name);
  // Bounded by the file before they are multiplied: damage may hold any number.
  const bool plausible = trailer.count < bytes.size() && trailer.units < bytes.size();
  const uint64_t offsets_at = sizeof(Header) + round_up(trailer.units * unit_, 8);
  const uint64_t parts = trailer.count * sequences_;
  const uint64_t words_at = offsets_at + (parts + 1) * sizeof(uint64_t);
  const uint64_t expected = words_at + round_up(trailer.count * facts_ * sizeof(uint32_t), 8) + sizeof(Trailer);
  XF_CHECK(plausible && expected == bytes.size(), DataError,
           "{} is damaged: expected {} bytes for {} examples of {} units, found {}", name, expected, trailer.count,
           trailer.units, bytes.size());
  count_ = static_cast<int64_t>(trailer.count);
  elements_ = bytes.data() + sizeof(Header);
  offsets_ = reinterpret_cast<const uint64_t*>(bytes.data() + offsets_at);
  words_ = reinterpret_cast<const uint32_t*>(bytes.data() + words_at);
  bool right = offsets_[0] == 0 && offsets_[parts] == trailer.units;
  for (uint64_t i = 0; i < parts && right; ++i) {
    const Part& part = parts_[facts_ + i % sequences_];
    const uint64_t begin = round_up(offsets_[i] * unit_, bytes_in(part)), end = offsets_[i + 1] * unit_;
    right = begin <= end && offsets_[i + 1] <= trailer.units &&
            (end - begin) % (bytes_in(part) * static_cast<uint64_t>(part.field.k)) == 0;
  }
  for (int64_t i = 0; i < count_; ++i) {
    for (size_t fact = 0; fact < facts_; ++fact) {
      const Field& field = parts_[fact].field;
      const double value = word(i, fact);
      const bool within = field.range == 0 || (value >= 0 && value < static_cast<double>(field.range));
      right = right && std::isfinite(value) && within;
    }
  }
  XF_CHECK(right, DataError, "{} is damaged: its table of offsets and targets is wrong", name);
}

double SplitMap::word(int64_t index, size_t fact) const {
  const uint32_t word = words_[static_cast<uint64_t>(index) * facts_ + fact];
  if (parts_[fact].field.element == Element::kF32) return std::bit_cast<float>(word);
  return static_cast<int32_t>(word);
}

Elements SplitMap::elements(int64_t index, size_t part) const {
  const uint64_t place = static_cast<uint64_t>(index) * sequences_ + (part - facts_), size = bytes_in(parts_[part]);
  const uint64_t begin = round_up(offsets_[place] * unit_, size), end = offsets_[place + 1] * unit_;
  return {parts_[part].field.element, elements_ + begin, (end - begin) / size};
}

Example SplitMap::read(int64_t index) const {
  XF_ASSERT(index >= 0 && index < count_, "example {} of {}", index, count_);
  Example example;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (i < facts_) parts_[i].set_fact(example, word(index, i));
    else parts_[i].set_elements(example, elements(index, i));
  }
  return example;
}

std::string SplitMap::content_hash() const {
  Sha256 hash;
  for (int64_t index = 0; index < count_; ++index) {
    const uint32_t* const words = words_ + static_cast<uint64_t>(index) * facts_;
    for (size_t i = 0; i < facts_; ++i) hash.update(bytes_of(words[i]));
    for (size_t i = facts_; i < parts_.size(); ++i) hash_part(hash, elements(index, i));
  }
  return hash.hex();
}

}  // namespace xformer::data::cache_format
