// Arrays of bytes in the IDX format of MNIST (LeCun, Cortes, Burges, http://yann.lecun.com/exdb/mnist), plain or gzip:
// two zero bytes, the type of the elements, the number of dimensions, each size in four bytes, the highest first, and
// the elements.
//
// Errors are DataErrors that name the file: another beginning, elements that are no unsigned bytes, another number of
// dimensions, a size of 0, fewer or more bytes than the sizes say, a Git LFS pointer, a damaged gzip stream.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/files.h"

namespace xformer::readers {

struct IdxArray {
  std::vector<int64_t> sizes;
  std::vector<uint8_t> values;  // the last dimension fastest
};

// `dimensions`: that it must have; 0: any.
[[nodiscard]] IdxArray read_idx(const Path& path, size_t dimensions = 0);

}  // namespace xformer::readers
