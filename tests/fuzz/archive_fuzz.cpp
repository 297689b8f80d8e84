// libFuzzer target: any bytes either are walked as an archive or give an xformer::Error. Every path that is handed out
// is relative, normal and new, and the limits hold. Inputs of some sizes are also unpacked, in memory where the system
// has such a folder: what appears is files and folders, and after an error nothing.
#include <filesystem>
#include <set>

#include "core/error.h"
#include "memory_file.h"
#include "readers/archive.h"

namespace {

namespace fs = std::filesystem;

// Of this process; removed when it ends.
struct Scratch {
  fs::path path = (fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path()) /
                  ("xformer-fuzz-" + std::to_string(::getpid()));
  Scratch() { fs::create_directories(path); }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

void unpack_once(const std::string& archive, const xformer::readers::UnpackLimits& limits) {
  static const Scratch scratch;
  const fs::path folder = scratch.path / "unpacked";
  bool whole = true;
  try {
    xformer::readers::unpack(archive, folder, limits, {}, {});
  } catch (const xformer::Error&) {
    whole = false;
  }
  if (fs::exists(folder) != whole) std::abort();
  if (whole)
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_symlink() || !(entry.is_regular_file() || entry.is_directory())) std::abort();
  fs::remove_all(folder);
  if (!fs::is_empty(scratch.path)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace xformer::readers;
  const MemoryFile file({reinterpret_cast<const char*>(data), size});
  const UnpackLimits limits{64, uint64_t{1} << 20, 200};
  std::set<std::string> paths;
  uint64_t bytes = 0;
  try {
    for_each_entry(file.path(), limits, [&](const std::string& path, EntryReader& reader) {
      const std::string inside = "/" + path + "/";
      if (inside.find("/../") != std::string::npos || inside.find("/./") != std::string::npos ||
          inside.find("//") != std::string::npos || !paths.insert(path).second)
        std::abort();
      if (paths.size() > static_cast<size_t>(limits.entries)) std::abort();
      if (paths.size() % 3 == 0) return;  // skipped
      for (std::string_view block = reader.read(); !block.empty(); block = reader.read()) bytes += block.size();
      if (bytes > limits.bytes || reader.archive_position() > size || reader.archive_bytes() != size) std::abort();
    });
  } catch (const xformer::Error&) {
  }
  if (size % 16 == 0) unpack_once(file.path(), limits);
  return 0;
}
