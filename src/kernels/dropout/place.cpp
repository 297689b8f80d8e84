#include "kernels/dropout/place.h"

#include "core/error.h"
#include "kernels/dropout/cpu.h"
#include "kernels/dropout/numbers.h"

namespace xformer::kernels {

ElementDraws::ElementDraws(const DropoutPlace& place, const at::Tensor& dropped)
    : threshold_(dropout_threshold(place.p)) {
  if (threshold_ == 0 || dropped.numel() == 0) return;
  XF_ASSERT(place.state.device().is_cpu() && place.state.is_contiguous(), "dropout's state is in host memory");
  const int64_t* numbers = place.state.const_data_ptr<int64_t>();
  key_ = static_cast<uint64_t>(numbers[0]);
  high_ = dropout_counter_high(numbers[1], place.site);
  first_ = numbers[2] * (dropped.numel() / dropped.size(0));
}

double ElementDraws::keep() const { return dropout_scale(threshold_); }

const uint16_t* ElementDraws::draw(int64_t begin, int64_t count, std::vector<uint16_t>& memory) const {
  if (threshold_ == 0) return nullptr;
  const int64_t element = first_ + begin, skip = element % kElementsPerBlock;
  const int64_t blocks = (skip + count + kElementsPerBlock - 1) / kElementsPerBlock;
  const auto needed = static_cast<size_t>(blocks * kElementsPerBlock);
  if (memory.size() < needed) memory.resize(needed);
  draw_blocks(key_, high_, static_cast<uint64_t>(element / kElementsPerBlock), blocks, memory.data());
  return memory.data() + skip;
}

}  // namespace xformer::kernels
