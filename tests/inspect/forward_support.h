// What the tests of `xformer forward` share: looking into a result.
#pragma once

#include "attention/support.h"
#include "inspect/forward.h"

namespace xformer::inspect {

namespace support = attention::support;

inline at::Tensor find(const ForwardResult& result, const std::string& name) {
  for (const auto& [key, tensor] : result.tensors)
    if (key == name) return tensor;
  FAIL("no tensor " << name);
  return {};
}

inline std::vector<std::string> names_of(const ForwardResult& result) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : result.tensors) names.push_back(name);
  return names;
}

}  // namespace xformer::inspect
