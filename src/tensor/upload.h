// Copies from ordinary host memory to a device that do not make the host wait for the device: two sets of pinned
// buffers take turns, so that the next batch can be handed over while the last one is still on its way.
#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

namespace xformer {

class Upload {
 public:
  // To the CPU there is nothing to stage: the copies are plain ones.
  explicit Upload(const at::Device& device) : device_(device) {}

  // Copies each first tensor (host memory, any that may be reused afterwards) into the second (of the same shape, on
  // the device; types convert on the way). The shapes are those of the first call.
  void operator()(const std::vector<std::pair<at::Tensor, at::Tensor>>& copies);

 private:
  struct Slot {
    std::vector<at::Tensor> pinned;
    std::optional<c10::Event> sent;  // the device has read the slot's buffers
  };
  at::Device device_;
  std::array<Slot, 2> slots_;
  size_t turn_ = 0;
};

}  // namespace xformer
