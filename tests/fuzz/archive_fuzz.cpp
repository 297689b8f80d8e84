// libFuzzer target: any bytes either are walked as an archive or give an xformer::Error; nothing is written. Every path
// that is handed out is relative, normal and new, and the limits hold.
#include <set>

#include "core/error.h"
#include "memory_file.h"
#include "readers/archive.h"

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
  return 0;
}
