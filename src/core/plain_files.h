// Files of data are plain ones, or links to such: a folder, a pipe or a device in their place is refused before
// anything waits for it, and what the file system says becomes an error of ours.
//
// Errors: what is missing or of another kind is a DataError, what is forbidden a ResourceError; both name the path.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

#include "core/files.h"

namespace xformer {

// What lies there in place of a plain file, links followed: "a folder", "a pipe", "a device", "a socket", "a link that
// leads nowhere", "a link that leads to itself", "nothing"; "" for a plain file.
[[nodiscard]] std::string other_than_a_file(const Path& path);

// "a folder", "a pipe", "a socket", "a device"; "" for a plain file.
[[nodiscard]] std::string name_of_kind(mode_t mode);

// Opened to be read; whoever calls closes it.
[[nodiscard]] int open_plain_file(const Path& path);
[[nodiscard]] uint64_t size_of_plain_file(const Path& path);

// "cannot read /a/b: Permission denied", by errno or as std::filesystem said it.
[[noreturn]] void fail_reading(const Path& path, int error);
[[noreturn]] void fail_reading(const std::filesystem::filesystem_error& error);

}  // namespace xformer
