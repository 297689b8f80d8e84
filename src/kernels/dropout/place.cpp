#include "kernels/dropout/place.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/lanes_512.h"
#include "kernels/dropout/cpu.h"
#include "kernels/dropout/numbers.h"

namespace xformer::kernels {

DropoutPlace remembering(const DropoutPlace& place, int64_t elements, int64_t width) {
  DropoutPlace result = place;
  if (dropout_threshold(place.p) > 0 && place.state.is_cpu() && has_512() && width % kBitsPerByte == 0)
    result.kept = at::empty({elements / kBitsPerByte}, at::kByte);
  return result;
}

ElementDraws::ElementDraws(const DropoutPlace& place, const at::Tensor& dropped, DrawnBy pass)
    : threshold_(dropout_threshold(place.p)) {
  if (threshold_ == 0 || dropped.numel() == 0) return;
  XF_ASSERT(place.state.device().is_cpu() && place.state.is_contiguous(), "dropout's state is in host memory");
  const int64_t* numbers = place.state.const_data_ptr<int64_t>();
  key_ = static_cast<uint64_t>(numbers[0]);
  high_ = dropout_counter_high(numbers[1], place.site);
  first_ = numbers[2] * (dropped.numel() / dropped.size(0));
  if (!place.kept.defined()) return;
  XF_ASSERT(place.kept.numel() * kBitsPerByte == dropped.numel(), "{} bytes for what is kept of {} elements",
            place.kept.numel(), dropped.numel());
  kept_ = place.kept.mutable_data_ptr<uint8_t>();
  again_ = pass == DrawnBy::kBackward;
}

double ElementDraws::keep() const { return dropout_scale(threshold_); }

const uint16_t* ElementDraws::draw(int64_t begin, int64_t count, std::vector<uint16_t>& memory, int64_t beyond) const {
  if (threshold_ == 0) return nullptr;
  const int64_t element = first_ + begin, skip = element % kElementsPerBlock;
  const int64_t blocks = (skip + count + kElementsPerBlock - 1) / kElementsPerBlock;
  const auto needed = static_cast<size_t>(blocks * kElementsPerBlock + beyond);
  if (memory.size() < needed) memory.resize(needed);
  uint8_t* const kept = kept_ == nullptr ? nullptr : kept_ + begin / kBitsPerByte;
  if (again_) {
    draws_of_bits_by_512(kept, count, memory.data());
    return memory.data();
  }
  draw_blocks(key_, high_, static_cast<uint64_t>(element / kElementsPerBlock), blocks, memory.data());
  if (kept != nullptr) kept_bits_by_512(memory.data() + skip, count, threshold_, kept);
  return memory.data() + skip;
}

void ElementDraws::draw_chosen(int64_t begin, const int64_t* chosen, int64_t count, uint16_t* draws) const {
  XF_ASSERT(threshold_ > 0 && kept_ == nullptr, "some draws of a place that remembers, or of none");
  const int64_t element = first_ + begin;
  uint64_t blocks[kSomeBlocks] = {};
  uint16_t drawn[kSomeBlocks * kElementsPerBlock];
  for (int64_t first = 0; first < count; first += kSomeBlocks) {
    const int64_t some = std::min(kSomeBlocks, count - first);
    const auto number = [&](int64_t i) { return element + std::max<int64_t>(0, chosen[first + i]); };
    for (int64_t i = 0; i < some; ++i) blocks[i] = static_cast<uint64_t>(number(i) / kElementsPerBlock);
    draw_some_blocks(key_, high_, blocks, drawn);
    for (int64_t i = 0; i < some; ++i) draws[first + i] = drawn[i * kElementsPerBlock + number(i) % kElementsPerBlock];
  }
}

}  // namespace xformer::kernels
