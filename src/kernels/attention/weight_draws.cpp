#include "kernels/attention/weight_draws.h"

#include <algorithm>

#include "core/error.h"
#include "kernels/dropout/cpu.h"
#include "kernels/dropout/numbers.h"

namespace xformer::kernels {

namespace {

// A row's bits are then little beside a query, and rows lie one behind the other in a tile. (Those of few queries are
// little beside a key.)
constexpr int64_t kFewKeys = 256;

// To begin a row's draws anew costs as much as so many more.
constexpr int64_t kBeginning = 64;

int64_t whole_blocks(int64_t elements) {
  return (elements + kElementsPerBlock - 1) / kElementsPerBlock * kElementsPerBlock;
}

}  // namespace

DropoutPlace remembering_weights(const DropoutPlace& place, const HeadSizes& sizes) {
  const bool few = sizes.m <= kFewKeys || sizes.n <= kFewQueries;
  return few ? remembering(place, sizes.b * sizes.h * sizes.n * sizes.m, sizes.m) : place;
}

WeightDraws::WeightDraws(const DropoutPlace& place, const HeadSizes& sizes, DrawnBy pass)
    : threshold_(dropout_threshold(place.p)), h_(sizes.h), n_(sizes.n), m_(sizes.m) {
  if (threshold_ == 0) return;
  XF_ASSERT(place.state.device().is_cpu() && place.state.is_contiguous(), "dropout's state is in host memory");
  const int64_t* numbers = place.state.const_data_ptr<int64_t>();
  key_ = static_cast<uint64_t>(numbers[0]);
  high_ = dropout_counter_high(numbers[1], place.site);
  first_row_ = numbers[2];
  if (!place.kept.defined()) return;
  XF_ASSERT(place.kept.numel() * kBitsPerByte == sizes.b * h_ * n_ * m_, "{} bytes for what is kept of [{},{},{},{}]",
            place.kept.numel(), sizes.b, h_, n_, m_);
  kept_ = place.kept.mutable_data_ptr<uint8_t>();
  again_ = pass == DrawnBy::kBackward;
}

double WeightDraws::keep() const { return dropout_scale(threshold_); }

int64_t WeightDraws::drawn(int64_t first, int64_t count) const {
  return first == 0 && m_ <= kFewKeys && m_ - count < kBeginning ? m_ : count;
}

size_t WeightDraws::room(int64_t rows, int64_t count) const {
  return any() ? static_cast<size_t>(rows * (std::max(count, std::min(m_, kFewKeys)) + 2 * kElementsPerBlock)) : 0;
}

void WeightDraws::draw(int64_t b, int64_t h, int64_t row, int64_t rows, int64_t first, int64_t count,
                       std::vector<uint16_t>& memory, std::vector<const uint16_t*>& starts) const {
  if (!any()) {
    std::fill(starts.begin(), starts.end(), nullptr);
    return;
  }
  const int64_t width = drawn(first, count), line = whole_blocks(width + kElementsPerBlock);
  const bool gapless = width == m_;  // rows follow each other
  for (int64_t r = 0; r < rows; r += gapless ? rows : 1) {
    const int64_t place = ((b * h_ + h) * n_ + row + r) * m_ + first, element = first_row_ * h_ * n_ * m_ + place;
    const int64_t skip = element % kElementsPerBlock, wanted = gapless ? rows * width : width;
    uint16_t* const into = memory.data() + r * line;
    // Bits stand for whole blocks: rows that are remembered begin and end with one.
    uint8_t* const kept = kept_ == nullptr ? nullptr : kept_ + place / kBitsPerByte;
    if (again_) {
      draws_of_bits_by_512(kept, whole_blocks(wanted), into);
    } else {
      draw_blocks(key_, high_, static_cast<uint64_t>(element / kElementsPerBlock),
                  whole_blocks(skip + wanted) / kElementsPerBlock, into);
      if (kept != nullptr) kept_bits_by_512(into, whole_blocks(wanted), threshold_, kept);
    }
    for (int64_t i = 0; i < (gapless ? rows : 1); ++i) starts[static_cast<size_t>(r + i)] = into + skip + i * width;
  }
}

}  // namespace xformer::kernels
