#include "readers/idx.h"

#include <array>

#include "core/error.h"
#include "readers/byte_source.h"
#include "readers/lfs_pointer.h"

namespace xformer::readers {

namespace {

constexpr uint64_t kMostElements = uint64_t{1} << 33;

std::string element_type(uint8_t code) {
  switch (code) {
    case 0x08:
      return "unsigned bytes";
    case 0x09:
      return "signed bytes";
    case 0x0B:
      return "whole numbers of two bytes";
    case 0x0C:
      return "whole numbers of four bytes";
    case 0x0D:
      return "floats";
    case 0x0E:
      return "doubles";
    default:
      return "";
  }
}

// Reads on until there are so many bytes or no more.
void fill_to(ByteSource& source, std::string& bytes, size_t count) {
  while (bytes.size() < count && source.append_to(bytes)) {
  }
}

}  // namespace

IdxArray read_idx(const Path& path, size_t dimensions) {
  ByteSource source(path);
  std::string bytes;
  fill_to(source, bytes, 64);
  refuse_lfs_pointer(bytes, path.string());
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(bytes[at]); };
  XF_CHECK(!bytes.empty(), DataError, "{} is empty: expected an IDX file", path.string());
  XF_CHECK(bytes.size() >= 4 && byte(0) == 0 && byte(1) == 0 && !element_type(byte(2)).empty() && byte(3) > 0,
           DataError, "{}: expected an IDX file, which begins with two zero bytes, a type and its dimensions",
           path.string());
  XF_CHECK(byte(2) == 0x08, DataError, "{}: expected unsigned bytes, found {}", path.string(), element_type(byte(2)));
  const size_t count = byte(3);
  XF_CHECK(dimensions == 0 || count == dimensions, DataError, "{}: expected {} dimension{}, found {}", path.string(),
           dimensions, dimensions == 1 ? "" : "s", count);
  const size_t begin = 4 + 4 * count;
  fill_to(source, bytes, begin);
  XF_CHECK(bytes.size() >= begin, DataError, "{} is cut off in its header: {} of {} bytes", path.string(), bytes.size(),
           begin);
  IdxArray array;
  uint64_t elements = 1;
  for (size_t i = 0; i < count; ++i) {
    uint64_t size = 0;
    for (size_t at = 4 + 4 * i; at < 8 + 4 * i; ++at) size = size << 8 | byte(at);
    XF_CHECK(size > 0, DataError, "{}: expected elements, found the size 0", path.string());
    XF_CHECK(size <= kMostElements / elements, DataError, "{}: its header says more than {} bytes", path.string(),
             kMostElements);
    elements *= size;
    array.sizes.push_back(static_cast<int64_t>(size));
  }
  // One byte more than there should be, if there is one. What comes is kept, not what the header promises.
  bytes.erase(0, begin);
  fill_to(source, bytes, elements + 1);
  XF_CHECK(bytes.size() >= elements, DataError, "{} is cut off: its header says {} bytes, found {}", path.string(),
           elements, bytes.size());
  XF_CHECK(bytes.size() == elements, DataError, "{}: its header says {} bytes, and more follow", path.string(),
           elements);
  array.values.assign(bytes.begin(), bytes.end());
  return array;
}

}  // namespace xformer::readers
