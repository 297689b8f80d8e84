// Index tables of an attention that follow from numbers alone (lengths, heads): made at the first step of their kind
// and kept, so that no later step launches anything for them.
#pragma once

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tensor/recording_scope.h"

namespace xformer::attention {

// A table that was made on the host, where it is read. LibTorch's error while work is recorded: its copy would run with
// every replay, from memory that is gone.
[[nodiscard]] inline at::Tensor host_table(const at::Tensor& table, const at::Device& device) {
  TORCH_CHECK(!RecordingScope::any(), "an index table is made on the host, which recorded work cannot do");
  return table.to(device);
}

class IndexTables {
 public:
  static constexpr size_t kMost = 64;

  // The table `name` of these numbers on a device. make(options of int64 tensors there) makes it the first time; while
  // work is recorded it is made as a part of that work, and not kept; nor are more than kMost, for decoding has another
  // length at every step.
  template <class Make>
  [[nodiscard]] at::Tensor get(const char* name, std::vector<int64_t> numbers, const at::Device& device,
                               const Make& make) const {
    const auto made = [&] {
      const at::NoGradGuard no_grad;
      return make(at::TensorOptions(at::kLong).device(device));
    };
    std::tuple key(std::string(name), std::move(numbers), device.str());
    const auto found = tables_.find(key);
    if (found != tables_.end()) return found->second;
    if (RecordingScope::any() || tables_.size() >= kMost) return made();
    return tables_.emplace(std::move(key), made()).first->second;
  }

  // 0, 1, .. count - 1.
  [[nodiscard]] at::Tensor numbers(int64_t count, const at::Device& device) const {
    return get("numbers", {count}, device,
               [&](const at::TensorOptions& options) { return at::arange(count, options); });
  }

 private:
  mutable std::map<std::tuple<std::string, std::vector<int64_t>, std::string>, at::Tensor> tables_;
};

// What an attention makes on the host of a length, on a device. All of training are kept, and kMost others: a text that
// is written has another length at every symbol. Of further ones the last is there, and for good once it is recorded.
template <class Table>
class TablesByLength {
 public:
  template <class Make>
  [[nodiscard]] const Table& get(int64_t length, const at::Device& device, bool training, const Make& make) const {
    const std::pair key(length, device.str());
    if (const auto found = kept_.find(key); found != kept_.end()) return found->second;
    const bool here = last_ && last_->first == key;
    if (training || RecordingScope::any() || kept_.size() < IndexTables::kMost)
      return kept_.emplace(key, here ? last_->second : make()).first->second;
    if (!here) last_.emplace(key, make());
    return last_->second;
  }

 private:
  using Key = std::pair<int64_t, std::string>;
  mutable std::map<Key, Table> kept_;
  mutable std::optional<std::pair<Key, Table>> last_;
};

}  // namespace xformer::attention
