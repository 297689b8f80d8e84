// The header of a safetensors file: names, types, shapes and byte ranges. No LibTorch.
//
// Layout: uint64 little-endian header length, JSON header padded with spaces to 8 bytes, data. Refuses what the
// format's reference (huggingface/safetensors, src/tensor.rs) refuses: a header over 100,000,000 bytes or longer than
// the file, unknown types, shapes whose product overflows, ranges that overlap, leave holes or do not cover the data
// exactly, a size that does not fit the shape. Errors are DataError naming the file and the tensor.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace xformer::readers {

struct TensorEntry {
  std::string name;
  std::string type;  // "F32", "F64", "I64", "BOOL", "BF16", ...
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes within the data section
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<TensorEntry> tensors;  // in order of their data
  uint64_t data_offset = 0;          // of the data section within the file
};

[[nodiscard]] size_t bytes_per_element(const std::string& type);  // 0 for an unknown type

// `origin` is the file's name for messages.
[[nodiscard]] SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& origin);

// The header's bytes, length field included, for tensors whose begin and end are already set in order.
[[nodiscard]] std::string write_safetensors_header(const SafetensorsHeader& header);

}  // namespace xformer::readers
