#include "data/cache_format.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/file_operations.h"
#include "data/cache.h"

namespace xformer::data::cache_format {
namespace {

static_assert(std::endian::native == std::endian::little, "the cache is mapped as it lies: little-endian machines");

constexpr char kMagic[8] = {'X', 'F', 'S', 'P', 'L', 'I', 'T', '\n'};
constexpr size_t kBufferBytes = size_t{1} << 20;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t zero;
};
struct Trailer {
  uint64_t count;
  uint64_t tokens;
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

uint64_t round_up(uint64_t size) { return (size + 7) / 8 * 8; }

}  // namespace

SplitWriter::SplitWriter(const Path& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) file_operations::fail("write", path, errno);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = static_cast<uint32_t>(kCacheVersion);
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

void SplitWriter::add(std::span<const uint8_t> tokens, int64_t label) {
  const auto length = static_cast<uint32_t>(tokens.size());
  const std::string_view bytes{reinterpret_cast<const char*>(tokens.data()), tokens.size()};
  labels_.push_back(static_cast<uint32_t>(label));
  offsets_.push_back(offsets_.back() + tokens.size());
  hash_.update(bytes_of(labels_.back()));
  hash_.update(bytes_of(length));
  hash_.update(bytes);
  write(bytes);
}

void SplitWriter::finish() {
  pad();
  write(bytes_of(offsets_));
  write(bytes_of(labels_));
  pad();
  Trailer trailer{labels_.size(), offsets_.back(), {}};
  std::memcpy(trailer.magic, kMagic, sizeof kMagic);
  write(bytes_of(trailer));
  flush();
  if (const int error = file_operations::sync(descriptor_); error != 0) file_operations::fail("write", path_, error);
  if (::close(std::exchange(descriptor_, -1)) != 0) file_operations::fail("write", path_, errno);
}

SplitMap::SplitMap(const Path& path, int64_t version, int64_t classes) : file_(path) {
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
  Trailer trailer{};
  std::memcpy(&trailer, bytes.data() + bytes.size() - sizeof trailer, sizeof trailer);
  XF_CHECK(std::memcmp(trailer.magic, kMagic, sizeof kMagic) == 0, DataError,
           "{} is cut off: it does not end as a packed split does", name);
  // Bounded by the file before they are multiplied: damage may hold any number.
  const bool plausible = trailer.count < bytes.size() && trailer.tokens < bytes.size();
  const uint64_t offsets_at = sizeof(Header) + round_up(trailer.tokens);
  const uint64_t labels_at = offsets_at + (trailer.count + 1) * sizeof(uint64_t);
  const uint64_t expected = labels_at + round_up(trailer.count * sizeof(uint32_t)) + sizeof(Trailer);
  XF_CHECK(plausible && expected == bytes.size(), DataError,
           "{} is damaged: expected {} bytes for {} examples with {} tokens, found {}", name, expected, trailer.count,
           trailer.tokens, bytes.size());
  count_ = static_cast<int64_t>(trailer.count);
  tokens_ = reinterpret_cast<const uint8_t*>(bytes.data() + sizeof(Header));
  offsets_ = reinterpret_cast<const uint64_t*>(bytes.data() + offsets_at);
  labels_ = reinterpret_cast<const uint32_t*>(bytes.data() + labels_at);
  bool in_order = offsets_[0] == 0 && offsets_[count_] == trailer.tokens;
  for (int64_t i = 0; i < count_; ++i) in_order = in_order && offsets_[i] <= offsets_[i + 1] && labels_[i] < classes;
  XF_CHECK(in_order, DataError, "{} is damaged: its table of offsets and labels is wrong", name);
}

TokenExample SplitMap::read(int64_t index) const {
  XF_ASSERT(index >= 0 && index < count_, "example {} of {}", index, count_);
  return {{tokens_ + offsets_[index], offsets_[index + 1] - offsets_[index]}, static_cast<int64_t>(labels_[index])};
}

}  // namespace xformer::data::cache_format
