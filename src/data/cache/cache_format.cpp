#include "data/cache/cache_format.h"

#include <fcntl.h>
#include <unistd.h>

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
  uint16_t element_bytes, sequences;
};
struct Trailer {
  uint64_t count;
  uint64_t elements;
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

uint64_t element_bytes(const DataShape& shape) { return shape.vocabulary > 0 ? sizeof(uint8_t) : sizeof(float); }

uint64_t round_up(uint64_t size) { return (size + 7) / 8 * 8; }

}  // namespace

SplitWriter::SplitWriter(const Path& path, const DataShape& shape) : path_(path), shape_(shape) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) file_operations::fail("write", path, errno);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = static_cast<uint32_t>(kCacheVersion);
  header.element_bytes = static_cast<uint16_t>(element_bytes(shape));
  header.sequences = static_cast<uint16_t>(shape.sequences);
  write(bytes_of(header));
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

void SplitWriter::pad() { write(std::string(round_up(written_) - written_, '\0')); }

void SplitWriter::add(const Example& example) {
  const bool number = shape_.target.has("target");
  targets_.push_back(number ? std::bit_cast<uint32_t>(example.target) : static_cast<uint32_t>(example.label));
  hash_.update(bytes_of(targets_.back()));
  const auto add_sequence = [this](std::string_view bytes, size_t elements) {
    const auto length = static_cast<uint32_t>(elements);
    offsets_.push_back(offsets_.back() + elements);
    hash_.update(bytes_of(length));
    hash_.update(bytes);
    write(bytes);
  };
  for (int64_t i = 0; i < shape_.sequences; ++i) {
    const auto part = shape_.vocabulary > 0 ? std::as_bytes(example.ids[static_cast<size_t>(i)])
                                            : std::span<const std::byte>(std::as_bytes(example.values));
    add_sequence({reinterpret_cast<const char*>(part.data()), part.size()}, part.size() / element_bytes(shape_));
  }
}

void SplitWriter::finish() {
  pad();
  write(bytes_of(offsets_));
  write(bytes_of(targets_));
  pad();
  Trailer trailer{targets_.size(), offsets_.back(), {}};
  std::memcpy(trailer.magic, kMagic, sizeof kMagic);
  write(bytes_of(trailer));
  flush();
  if (const int error = file_operations::sync(descriptor_); error != 0) file_operations::fail("write", path_, error);
  if (::close(std::exchange(descriptor_, -1)) != 0) file_operations::fail("write", path_, errno);
}

SplitMap::SplitMap(const Path& path, int64_t version, const DataShape& shape)
    : file_(path),
      sequences_(shape.sequences),
      numbers_(shape.vocabulary == 0),
      number_target_(shape.target.has("target")) {
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
  XF_CHECK(header.element_bytes == element_bytes(shape) && header.sequences == shape.sequences, DataError,
           "{} is damaged: it holds {} sequences of elements of {} bytes, expected {} of {}", name, header.sequences,
           header.element_bytes, shape.sequences, element_bytes(shape));
  Trailer trailer{};
  std::memcpy(&trailer, bytes.data() + bytes.size() - sizeof trailer, sizeof trailer);
  XF_CHECK(std::memcmp(trailer.magic, kMagic, sizeof kMagic) == 0, DataError,
           "{} is cut off: it does not end as a packed split does", name);
  // Bounded by the file before they are multiplied: damage may hold any number.
  const bool plausible = trailer.count < bytes.size() && trailer.elements < bytes.size();
  const uint64_t offsets_at = sizeof(Header) + round_up(trailer.elements * header.element_bytes);
  const uint64_t parts = trailer.count * header.sequences;
  const uint64_t targets_at = offsets_at + (parts + 1) * sizeof(uint64_t);
  const uint64_t expected = targets_at + round_up(trailer.count * sizeof(uint32_t)) + sizeof(Trailer);
  XF_CHECK(plausible && expected == bytes.size(), DataError,
           "{} is damaged: expected {} bytes for {} examples with {} elements, found {}", name, expected, trailer.count,
           trailer.elements, bytes.size());
  count_ = static_cast<int64_t>(trailer.count);
  elements_ = bytes.data() + sizeof(Header);
  offsets_ = reinterpret_cast<const uint64_t*>(bytes.data() + offsets_at);
  targets_ = reinterpret_cast<const uint32_t*>(bytes.data() + targets_at);
  const uint64_t place = numbers_ ? static_cast<uint64_t>(shape.width) : 1;  // elements of one place
  const int64_t classes = shape.target.classes();
  bool right = offsets_[0] == 0 && offsets_[parts] == trailer.elements;
  for (uint64_t i = 0; i < parts; ++i)
    right = right && offsets_[i] <= offsets_[i + 1] && (offsets_[i + 1] - offsets_[i]) % place == 0;
  for (int64_t i = 0; i < count_; ++i)
    right = right && (number_target_ ? std::isfinite(std::bit_cast<float>(targets_[i])) : targets_[i] < classes);
  XF_CHECK(right, DataError, "{} is damaged: its table of offsets and targets is wrong", name);
}

Example SplitMap::read(int64_t index) const {
  XF_ASSERT(index >= 0 && index < count_, "example {} of {}", index, count_);
  Example example;
  for (int64_t i = 0; i < sequences_; ++i) {
    const uint64_t begin = offsets_[index * sequences_ + i], size = offsets_[index * sequences_ + i + 1] - begin;
    if (numbers_) example.values = {reinterpret_cast<const float*>(elements_) + begin, size};
    else example.ids[static_cast<size_t>(i)] = {reinterpret_cast<const uint8_t*>(elements_) + begin, size};
  }
  if (number_target_) example.target = std::bit_cast<float>(targets_[index]);
  else example.label = static_cast<int64_t>(targets_[index]);
  return example;
}

}  // namespace xformer::data::cache_format
