// Copies from ordinary host memory to a device that do not make the host wait for the device: what travels together
// lies in one block of memory there and goes by one copy; two pinned blocks take turns, so that the next batch can be
// handed over while the last one is still on its way.
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
  using Shapes = std::vector<std::pair<std::vector<int64_t>, at::ScalarType>>;

  // Zeros of these shapes and types on the device. To the CPU there is nothing to stage: the copies are plain ones.
  Upload(const at::Device& device, const Shapes& shapes);
  Upload(Upload&&) = default;
  // Waits for the copies under way. Leaves the blocks of a device that failed where they are: LibTorch asks the device
  // before it frees them, and what a destructor throws would end the process before the failure is told.
  ~Upload();

  // Where what is copied arrives, always in the same places.
  [[nodiscard]] const std::vector<at::Tensor>& tensors() const { return tensors_; }

  // Copies one tensor for each of tensors() (host memory, any that may be reused afterwards, of the same shape; types
  // convert on the way).
  void operator()(const std::vector<at::Tensor>& from);

 private:
  struct Slot {
    at::Tensor pinned;               // the block's bytes
    std::vector<at::Tensor> views;   // of them
    std::optional<c10::Event> sent;  // the device has read the block
  };
  [[nodiscard]] std::vector<at::Tensor> views_of(const at::Tensor& block) const;

  at::Device device_;
  Shapes shapes_;
  at::Tensor block_;
  std::vector<at::Tensor> tensors_;
  std::array<Slot, 2> slots_;
  size_t turn_ = 0;
};

}  // namespace xformer
