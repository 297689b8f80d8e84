// libFuzzer target: any bytes either give an array whose sizes say how many values it has or an xformer::Error, and
// written anew it is read back unchanged.
#include <cstdlib>

#include "core/error.h"
#include "memory_file.h"
#include "readers/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile file({reinterpret_cast<const char*>(data), size});
  xformer::readers::IdxArray array;
  try {
    array = xformer::readers::read_idx(file.path());
  } catch (const xformer::Error&) {
    return 0;
  }
  int64_t elements = 1;
  std::string text{'\0', '\0', '\x08', static_cast<char>(array.sizes.size())};
  for (const int64_t one : array.sizes) {
    elements *= one;
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(one >> shift);
  }
  if (array.sizes.empty() || elements != static_cast<int64_t>(array.values.size())) std::abort();
  text.append(array.values.begin(), array.values.end());
  const MemoryFile written(text);
  const xformer::readers::IdxArray back = xformer::readers::read_idx(written.path(), array.sizes.size());
  if (back.sizes != array.sizes || back.values != array.values) std::abort();
  return 0;
}
