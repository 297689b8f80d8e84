// Index tables of an attention that follow from numbers alone (lengths, heads): made at the first step of their kind,
// which is a plain one before any is captured in a CUDA graph, and kept.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace xformer::attention {

class IndexTables {
 public:
  // The table of these numbers on a device. make(options of int64 tensors there) makes it the first time.
  template <class Make>
  [[nodiscard]] at::Tensor get(std::vector<int64_t> numbers, const at::Device& device, const Make& make) const {
    at::Tensor& table = tables_[{std::move(numbers), device.str()}];
    if (!table.defined()) {
      const at::NoGradGuard no_grad;
      table = make(at::TensorOptions(at::kLong).device(device));
    }
    return table;
  }

 private:
  mutable std::map<std::pair<std::vector<int64_t>, std::string>, at::Tensor> tables_;
};

}  // namespace xformer::attention
