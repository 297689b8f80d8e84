// Files in the IDX format for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace xformer::scratch {

inline std::string idx_file(const std::vector<int64_t>& sizes, const std::string& values, uint8_t type = 0x08) {
  std::string text{'\0', '\0', static_cast<char>(type), static_cast<char>(sizes.size())};
  for (const int64_t one : sizes)
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(one >> shift);
  return text + values;
}

}  // namespace xformer::scratch
