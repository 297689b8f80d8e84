#include "data/images/resample.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace xformer::data {
namespace {

constexpr double kPi = 3.14159265358979323846;

double lanczos(double x) {
  if (x == 0) return 1;
  if (std::abs(x) >= 3) return 0;
  const double y = kPi * x;
  return 3 * std::sin(y) * std::sin(y / 3) / (y * y);
}

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

uint8_t level(double value) { return static_cast<uint8_t>(std::clamp(std::lround(value), 0L, 255L)); }

}  // namespace

std::vector<Taps> resampling_taps(Filter filter, int64_t source, double begin, double end, int64_t count, int64_t from,
                                  int64_t to) {
  const double scale = (end - begin) / static_cast<double>(count), wide = std::max(scale, 1.0);
  const double reach = (filter == Filter::kBicubic ? 2 : 3) * wide;
  std::vector<Taps> result;
  for (int64_t i = from; i < to; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(std::floor(centre - reach + 0.5)));
    const auto last = std::min(source, static_cast<int64_t>(std::floor(centre + reach + 0.5)));
    Taps taps{first, {}};
    double sum = 0;
    for (int64_t at = first; at < last; ++at) {
      const double x = (static_cast<double>(at) + 0.5 - centre) / wide;
      taps.weights.push_back(filter == Filter::kBicubic ? bicubic(x) : lanczos(x));
      sum += taps.weights.back();
    }
    for (double& weight : taps.weights) weight /= sum;
    result.push_back(std::move(taps));
  }
  return result;
}

readers::Image resized(const readers::Image& image, const Box& box, int64_t height, int64_t width, Filter filter) {
  return resized_part(image, box, height, width, {0, 0, height, width}, filter);
}

readers::Image resized_part(const readers::Image& image, const Box& box, int64_t full_height, int64_t full_width,
                            const Box& part, Filter filter) {
  XF_ASSERT(box.height > 0 && box.width > 0 && box.top >= 0 && box.left >= 0 && box.top + box.height <= image.height &&
                box.left + box.width <= image.width,
            "a box of {} x {} at {}, {} in {} x {}", box.height, box.width, box.top, box.left, image.height,
            image.width);
  const int64_t channels = image.channels;
  const auto stretch = [](int64_t begin, int64_t size) {
    return std::pair{static_cast<double>(begin), static_cast<double>(begin + size)};
  };
  const auto [left, right] = stretch(box.left, box.width);
  const auto [top, low] = stretch(box.top, box.height);
  const int64_t height = part.height, width = part.width;
  const std::vector<Taps> across =
      resampling_taps(filter, image.width, left, right, full_width, part.left, part.left + width);
  const std::vector<Taps> down =
      resampling_taps(filter, image.height, top, low, full_height, part.top, part.top + height);
  // Only the rows that the second pass reads.
  const int64_t first_row = down.front().first;
  const int64_t rows = down.back().first + static_cast<int64_t>(down.back().weights.size()) - first_row;
  std::vector<uint8_t> narrow(static_cast<size_t>(rows * width * channels));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < width; ++column) {
      const Taps& taps = across[static_cast<size_t>(column)];
      const uint8_t* from =
          &image.pixels[static_cast<size_t>(((first_row + row) * image.width + taps.first) * channels)];
      for (int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (size_t i = 0; i < taps.weights.size(); ++i)
          sum += taps.weights[i] * from[i * static_cast<size_t>(channels) + static_cast<size_t>(c)];
        narrow[static_cast<size_t>((row * width + column) * channels + c)] = level(sum);
      }
    }
  readers::Image result{width, height, channels, std::vector<uint8_t>(static_cast<size_t>(height * width * channels))};
  const auto row_bytes = static_cast<size_t>(width * channels);
  std::vector<double> sums(row_bytes);
  for (int64_t row = 0; row < height; ++row) {
    const Taps& taps = down[static_cast<size_t>(row)];
    std::fill(sums.begin(), sums.end(), 0.0);
    for (size_t i = 0; i < taps.weights.size(); ++i) {
      const uint8_t* from = &narrow[(static_cast<size_t>(taps.first - first_row) + i) * row_bytes];
      for (size_t at = 0; at < row_bytes; ++at) sums[at] += taps.weights[i] * from[at];
    }
    for (size_t at = 0; at < row_bytes; ++at)
      result.pixels[static_cast<size_t>(row) * row_bytes + at] = level(sums[at]);
  }
  return result;
}

}  // namespace xformer::data
