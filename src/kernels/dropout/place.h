// The draws of dropout inside a fused operator: those of kernels::dropout of the unfused tensor.
#pragma once

#include <vector>

#include "kernels/dropout/dropout.h"

namespace xformer::kernels {

// The draws of the elements of one contiguous tensor [rows, ...] in host memory.
class ElementDraws {
 public:
  ElementDraws(const DropoutPlace& place, const at::Tensor& dropped);

  [[nodiscard]] uint32_t threshold() const { return threshold_; }
  [[nodiscard]] double keep() const;
  // 16 bits for each of `count` elements from the tensor's element `begin` on, in `memory`; nullptr without dropout. An
  // element whose draw is below the threshold is dropped. A few hundred at once are drawn at the full rate.
  const uint16_t* draw(int64_t begin, int64_t count, std::vector<uint16_t>& memory) const;

 private:
  uint32_t threshold_;
  int64_t first_ = 0;  // the number of the tensor's first element
  uint64_t key_ = 0, high_ = 0;
};

}  // namespace xformer::kernels
