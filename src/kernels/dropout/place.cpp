#include "kernels/dropout/place.h"

#include <ATen/Functions.h>

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

}  // namespace xformer::kernels
