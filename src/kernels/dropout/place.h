// Dropout inside a fused operator: what kernels::dropout of the unfused tensor would be called with, and its draws.
#pragma once

#include <vector>

#include "kernels/dropout/dropout.h"

namespace xformer::kernels {

struct DropoutPlace {
  double p = 0;
  at::Tensor state;  // of the DropoutStream; only read where p > 0
  int64_t site = 0;

  DropoutPlace() = default;
  DropoutPlace(double probability, at::Tensor stream_state, int64_t number)
      : p(probability), state(std::move(stream_state)), site(number) {}
  // A module's site as it is now; none outside training.
  DropoutPlace(const Dropout& dropout, bool training);

  [[nodiscard]] at::Tensor operator()(const at::Tensor& x) const { return p > 0 ? dropout(x, p, state, site) : x; }
};

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
