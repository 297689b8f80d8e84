#include "readers/cifar.h"

#include "core/error.h"

namespace xformer::readers::cifar {

int64_t read_binary_batch(std::string_view bytes, const std::string& origin, const AddImage& add) {
  XF_CHECK(!bytes.empty() && bytes.size() % kRecordBytes == 0, DataError,
           "{}: expected records of {} bytes (a label and {} colours), found {} bytes: {} records and {} bytes over",
           origin, kRecordBytes, kChannels * kPixels, bytes.size(), bytes.size() / kRecordBytes,
           bytes.size() % kRecordBytes);
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  const size_t count = bytes.size() / kRecordBytes;
  for (size_t i = 0; i < count; ++i, data += kRecordBytes) {
    XF_CHECK(*data < kClasses, DataError, "{}: record {} of {}: expected a label from 0 to {}, found {}", origin, i + 1,
             count, kClasses - 1, *data);
    add(*data, std::span<const uint8_t, kChannels * kPixels>(data + 1, kChannels * kPixels));
  }
  return static_cast<int64_t>(count);
}

}  // namespace xformer::readers::cifar
