// The draws of dropout inside a fused operator: those of kernels::dropout of the unfused tensor.
#pragma once

#include <vector>

#include "kernels/dropout/dropout.h"

namespace xformer::kernels {

// The place with memory for what the forward pass keeps of so many elements in rows of `width`, a bit each, which the
// backward pass then need not draw. As it is where that would not pay or cannot be: without dropout, on a device,
// without AVX-512, in rows of no whole bytes.
[[nodiscard]] DropoutPlace remembering(const DropoutPlace& place, int64_t elements, int64_t width);

enum class DrawnBy { kForward, kBackward };

// The draws of the elements of one contiguous tensor [rows, ...] in host memory.
class ElementDraws {
 public:
  ElementDraws(const DropoutPlace& place, const at::Tensor& dropped, DrawnBy pass = DrawnBy::kForward);

  [[nodiscard]] uint32_t threshold() const { return threshold_; }
  [[nodiscard]] double keep() const;
  // 16 bits for each of `count` elements from the tensor's element `begin` on, in `memory`; nullptr without dropout. An
  // element whose draw is below the threshold is dropped. A few hundred at once are drawn at the full rate. Of a place
  // that remembers, whole rows; there is memory for so many draws `beyond` them, which say nothing.
  const uint16_t* draw(int64_t begin, int64_t count, std::vector<uint16_t>& memory, int64_t beyond = 0) const;
  // The draws of the elements begin + chosen[i] alone, to draws[i]; where chosen[i] is negative that says nothing. For
  // few of many elements, and places that do not remember.
  void draw_chosen(int64_t begin, const int64_t* chosen, int64_t count, uint16_t* draws) const;

 private:
  uint32_t threshold_;
  int64_t first_ = 0;  // the number of the tensor's first element
  uint64_t key_ = 0, high_ = 0;
  uint8_t* kept_ = nullptr;
  bool again_ = false;  // what is kept is read, not written
};

}  // namespace xformer::kernels
