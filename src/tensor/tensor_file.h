// Named tensors on disk as safetensors, written atomically and checked when read.
#pragma once

#include <torch/types.h>

#include <map>
#include <string>
#include <vector>

#include "core/files.h"

namespace xformer {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

struct TensorFile {
  std::map<std::string, std::string> metadata;
  std::map<std::string, at::Tensor> tensors;  // on the CPU, owning their memory
};

// "F32", "BF16", "I64", ...
[[nodiscard]] std::string safetensors_type(at::ScalarType type);

// Adds "content_sha256" (of the data section) to the metadata. ResourceError when the disk refuses; the old file stays.
void write_tensor_file(const Path& path, const NamedTensors& tensors, std::map<std::string, std::string> metadata);

// DataError naming the file when it is damaged: header, ranges, or content that does not match its hash.
[[nodiscard]] TensorFile read_tensor_file(const Path& path);

}  // namespace xformer
