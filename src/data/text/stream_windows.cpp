#include "data/text/stream_windows.h"

#include <algorithm>

#include "core/error.h"

namespace xformer::data {

StreamWindows::StreamWindows(int64_t size, int64_t length, int64_t stride)
    : size_(size), length_(length), stride_(stride) {
  XF_ASSERT(size >= 0 && stride >= 1 && stride <= length, "windows of {} places every {} of {}", length, stride, size);
}

int64_t StreamWindows::count() const {
  if (size_ == 0) return 0;
  return 1 + (std::max<int64_t>(size_ - length_, 0) + stride_ - 1) / stride_;
}

StreamWindow StreamWindows::at(int64_t index) const {
  XF_ASSERT(index >= 0 && index < count(), "window {} of {}", index, count());
  const int64_t begin = index * stride_;
  return {begin, std::min(length_, size_ - begin), index == 0 ? 0 : length_ - stride_};
}

}  // namespace xformer::data
