// .npy files made by hand, byte for byte as NumPy's format description says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xformer::npy_file {

inline std::string little_endian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>((value >> (8 * i)) & 0xFF);
  return text;
}

// The magic, the version, the header's length and the header, then the data.
inline std::string with_header(const std::string& header, const std::string& data, char major = 1) {
  return std::string("\x93NUMPY") + major + '\0' + little_endian(header.size(), major == 1 ? 2 : 4) + header + data;
}

inline std::string file(const std::string& descr, const std::string& shape, const std::string& data,
                        bool fortran_order = false, char major = 1) {
  return with_header("{'descr': '" + descr + "', 'fortran_order': " + (fortran_order ? "True" : "False") +
                         ", 'shape': " + shape + ", }          \n",
                     data, major);
}

// Elements of a number type: elements<float>({1, 2}).
template <class Element>
std::string elements(const std::vector<Element>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Element));
}

// Text of `width` characters each.
inline std::string characters(const std::vector<std::u32string>& words, size_t width) {
  std::string text;
  for (std::u32string word : words) {
    word.resize(width);
    for (const char32_t letter : word) text += little_endian(letter, 4);
  }
  return text;
}

}  // namespace xformer::npy_file
