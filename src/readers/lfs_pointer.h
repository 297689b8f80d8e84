// What Git leaves in place of a large file that it keeps elsewhere until `git lfs pull` (git-lfs, docs/spec.md:
// "version https://git-lfs.github.com/spec/v1" and two more lines). Read as data it would only look damaged.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/error.h"

namespace xformer::readers {

inline void refuse_lfs_pointer(std::string_view start, const std::string& where) {
  XF_CHECK(!start.starts_with("version https://git-lfs.github.com/spec/"), DataError,
           "{}: this is a Git LFS pointer, not the file: `git lfs pull` in its repository fetches it", where);
}

inline void refuse_lfs_pointer(std::span<const std::byte> start, const std::string& where) {
  refuse_lfs_pointer(std::string_view(reinterpret_cast<const char*>(start.data()), start.size()), where);
}

}  // namespace xformer::readers
