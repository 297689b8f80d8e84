// libFuzzer target: any bytes either give rows of Pathfinder's metadata or an xformer::Error, and no image leads out of
// the folder that it is looked for in.
#include <cstdlib>

#include "core/error.h"
#include "memory_file.h"
#include "readers/pathfinder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile file({reinterpret_cast<const char*>(data), size});
  try {
    const auto rows = xformer::readers::pathfinder::read_metadata(file.path());
    if (rows.empty()) std::abort();
    for (const auto& row : rows) {
      const xformer::Path inside = (xformer::Path("/set") / row.image).lexically_normal();
      if (!inside.string().starts_with("/set/") || (row.label != 0 && row.label != 1)) std::abort();
    }
  } catch (const xformer::Error&) {
  }
  return 0;
}
