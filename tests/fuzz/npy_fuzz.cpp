// libFuzzer target: any bytes either give an array or an xformer::Error, and an array that was read is written as
// NumPy would and read back unchanged.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "core/error.h"
#include "readers/npy.h"

namespace {

using namespace xformer::readers;

npy::Array parse(const std::string& bytes) {
  return npy::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "fuzzed input");
}

std::string written(const std::string& header, const std::string& data) {
  const size_t size = header.size();
  return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(size & 0xFF) + static_cast<char>(size >> 8) + header +
         data;
}

std::string header_of(const npy::Array& array, const std::string& type) {
  std::string shape;
  for (const int64_t size : array.shape) shape += std::to_string(size) + ", ";
  return "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
}

// Numbers as doubles; bit for bit, so that NaN compares too.
bool same_when_written(const npy::Array& array) {
  if (array.is_text()) return true;
  const auto& values = std::get<npy::Numbers>(array.values);
  const size_t bytes = values.size() * sizeof(double);
  std::string data(bytes, '\0');
  if (bytes > 0) std::memcpy(data.data(), values.data(), bytes);
  const npy::Array back = parse(written(header_of(array, "<f8"), data));
  const auto& read = std::get<npy::Numbers>(back.values);
  return back.shape == array.shape && read.size() == values.size() &&
         (bytes == 0 || std::memcmp(read.data(), values.data(), bytes) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  // The second form spares the fuzzer the frame: a byte of data size, then the header.
  for (const bool framed : {true, false}) {
    if (!framed && size == 0) continue;
    npy::Array array;
    try {
      array = parse(framed ? input : written(input.substr(1), std::string(data[0], '\1')));
    } catch (const xformer::Error&) {
      continue;
    }
    const auto count = static_cast<size_t>(array.rows() * array.columns());
    const size_t held = std::visit([](const auto& values) { return values.size(); }, array.values);
    if (held != count || !same_when_written(array)) std::abort();
  }
  return 0;
}
