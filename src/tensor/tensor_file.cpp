#include "tensor/tensor_file.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.h"
#include "core/hash.h"
#include "readers/safetensors.h"

namespace xformer {

namespace {

struct TypeName {
  at::ScalarType type;
  const char* name;
};
constexpr TypeName kTypes[] = {{at::kFloat, "F32"}, {at::kDouble, "F64"}, {at::kBFloat16, "BF16"}, {at::kHalf, "F16"},
                               {at::kLong, "I64"},  {at::kInt, "I32"},    {at::kShort, "I16"},     {at::kChar, "I8"},
                               {at::kByte, "U8"},   {at::kUInt16, "U16"}, {at::kUInt32, "U32"},    {at::kUInt64, "U64"},
                               {at::kBool, "BOOL"}};

at::ScalarType type_of(const readers::TensorEntry& tensor, const Path& path) {
  std::vector<std::string> known;
  for (const TypeName& entry : kTypes) {
    if (tensor.type == entry.name) return entry.type;
    known.emplace_back(entry.name);
  }
  throw DataError(fmt::format("{}: tensor {} has type {}; those that are read: {}", path.string(), tensor.name,
                              tensor.type, fmt::join(known, ", ")));
}

// An empty tensor may have sizes whose strides LibTorch cannot count.
bool has_strides(const std::vector<int64_t>& shape) {
  int64_t stride = 1;
  return std::none_of(shape.begin(), shape.end(), [&](int64_t size) {
    return __builtin_mul_overflow(stride, std::max<int64_t>(size, 1), &stride);
  });
}

std::string_view bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace

std::string safetensors_type(at::ScalarType type) {
  for (const TypeName& entry : kTypes)
    if (entry.type == type) return entry.name;
  throw InternalError(fmt::format("tensors of type {} have no safetensors name", at::toString(type)));
}

void write_tensor_file(const Path& path, const NamedTensors& tensors, std::map<std::string, std::string> metadata) {
  readers::SafetensorsHeader header;
  std::vector<at::Tensor> contents;
  Sha256 hash;
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    contents.push_back(tensor.detach().cpu().contiguous());
    const at::Tensor& content = contents.back();
    header.tensors.push_back(
        {name, safetensors_type(content.scalar_type()), content.sizes().vec(), offset, offset + content.nbytes()});
    offset += content.nbytes();
    hash.update(bytes_of(content));
  }
  metadata["content_sha256"] = hash.hex();
  header.metadata = std::move(metadata);
  write_file_atomically(path, [&](const ByteSink& sink) {
    sink(readers::write_safetensors_header(header));
    for (const at::Tensor& content : contents) sink(bytes_of(content));
  });
}

TensorFile read_tensor_file(const Path& path) {
  const MappedFile file(path);
  const auto header = readers::parse_safetensors(file.bytes(), path.string());
  const auto data = file.bytes().subspan(header.data_offset);
  const auto expected = header.metadata.find("content_sha256");
  if (expected != header.metadata.end()) {
    const std::string found = sha256({reinterpret_cast<const char*>(data.data()), data.size()});
    XF_CHECK(found == expected->second, DataError, "{}: damaged: its content has SHA-256 {}, its header says {}",
             path.string(), found, expected->second);
  }
  TensorFile result;
  result.metadata = header.metadata;
  for (const readers::TensorEntry& entry : header.tensors) {
    XF_CHECK(has_strides(entry.shape), DataError, "{}: tensor {} of shape [{}] is too large in its empty axes",
             path.string(), entry.name, fmt::join(entry.shape, ", "));
    at::Tensor tensor = at::empty(entry.shape, type_of(entry, path));
    std::copy_n(data.data() + entry.begin, entry.end - entry.begin, static_cast<std::byte*>(tensor.mutable_data_ptr()));
    result.tensors.emplace(entry.name, tensor);
  }
  return result;
}

}  // namespace xformer
