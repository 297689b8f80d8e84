#include "data/images/pixel_numbers.h"

#include <bit>
#include <cmath>
#include <numeric>
#include <random>

#include "core/error.h"
#include "data/generated_source.h"

namespace xformer::data {

namespace {

// As NumPy's RandomState shuffles (legacy_seeding, random_interval): from the last place down, each with a place up to
// it, drawn by masking 32 bits of the Mersenne Twister until they fit.
std::vector<int64_t> numpy_permutation(uint32_t seed, int64_t count) {
  std::mt19937 numbers(seed);
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (auto last = static_cast<uint32_t>(count - 1); last > 0; --last) {
    const uint32_t mask = std::bit_ceil(last + 1) - 1;
    uint32_t other = numbers() & mask;
    while (other > last) other = numbers() & mask;
    std::swap(order[last], order[other]);
  }
  return order;
}

std::vector<int64_t> reversed_bits(int64_t count) {
  const int bits = std::countr_zero(std::bit_ceil(static_cast<uint64_t>(count)));
  std::vector<int64_t> order;
  for (int64_t i = 0; i < int64_t{1} << bits; ++i) {
    int64_t reversed = 0;
    for (int bit = 0; bit < bits; ++bit) reversed |= (i >> bit & 1) << (bits - 1 - bit);
    if (reversed < count) order.push_back(reversed);
  }
  return order;
}

class PixelSource : public DataSource {
 public:
  PixelSource(std::unique_ptr<DataSource> packed, PixelNumbers numbers)
      : packed_(std::move(packed)), numbers_(std::move(numbers)), info_(packed_->info()) {
    const size_t channels = numbers_.mean.size();
    XF_ASSERT(channels == numbers_.deviation.size() && channels > 0, "{} means, {} deviations", channels,
              numbers_.deviation.size());
    DataShape& shape = info_.shape;
    shape.max_len /= static_cast<int64_t>(channels);
    shape.vocabulary = 0;
    shape.zero_is_padding = DataShape().zero_is_padding;  // which is of ids
    shape.width = static_cast<int64_t>(channels);
    order_ = pixel_order(numbers_.order, shape.max_len);
    if (!order_.empty()) {
      shape.side = 0;  // places beside each other are no neighbours
      info_.details["permutation"] = numbers_.order;
    }
    for (size_t c = 0; c < channels; ++c)
      for (int byte = 0; byte < 256; ++byte)
        levels_.push_back((static_cast<float>(byte) / 255 - numbers_.mean[c]) / numbers_.deviation[c]);
  }
  [[nodiscard]] int64_t size(Split split) const override { return packed_->size(split); }
  [[nodiscard]] const DataInfo& info() const override { return info_; }
  [[nodiscard]] Example read(Split split, int64_t index) const override {
    static thread_local ExampleBuffers buffers;
    const Example packed = packed_->read(split, index);
    const std::span<const uint8_t> bytes = packed.ids[0];
    const size_t channels = numbers_.mean.size(), pixels = bytes.size() / channels;
    buffers.values.resize(bytes.size());
    for (size_t place = 0; place < pixels; ++place) {
      const size_t pixel = order_.empty() ? place : static_cast<size_t>(order_[place]);
      for (size_t c = 0; c < channels; ++c)
        buffers.values[place * channels + c] = levels_[256 * c + bytes[pixel * channels + c]];
    }
    Example example;
    example.values = buffers.values;
    example.label = packed.label;
    return example;
  }

 private:
  std::unique_ptr<DataSource> packed_;
  PixelNumbers numbers_;
  DataInfo info_;
  std::vector<int64_t> order_;
  std::vector<float> levels_;  // of a byte, by channel
};

}  // namespace

std::unique_ptr<DataSource> pixel_numbers(std::unique_ptr<DataSource> packed, PixelNumbers numbers) {
  return std::make_unique<PixelSource>(std::move(packed), std::move(numbers));
}

std::vector<uint8_t> pixel_bytes(const Example& example, const PixelNumbers& numbers) {
  const size_t channels = numbers.mean.size();
  std::vector<uint8_t> bytes(example.values.size());
  const std::vector<int64_t> order = pixel_order(numbers.order, static_cast<int64_t>(bytes.size() / channels));
  for (size_t i = 0; i < bytes.size(); ++i) {
    const size_t c = i % channels, place = i / channels;
    const size_t pixel = order.empty() ? place : static_cast<size_t>(order[place]);
    bytes[pixel * channels + c] =
        static_cast<uint8_t>(std::lround((example.values[i] * numbers.deviation[c] + numbers.mean[c]) * 255));
  }
  return bytes;
}

std::vector<int64_t> pixel_order(const std::string& name, int64_t count) {
  if (name == "bitreverse") return reversed_bits(count);
  if (name == "random-92916") return numpy_permutation(92916, count);
  XF_ASSERT(name == "none", "no order of pixels is called {}", name);
  return {};
}

}  // namespace xformer::data
