#include "data/images/augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace xformer::data {
namespace {

using readers::Image;

constexpr std::array<uint8_t, 3> kFill{124, 116, 104};  // the mean of ImageNet, where a picture was moved away

uint8_t level(double value) { return static_cast<uint8_t>(std::clamp(std::lround(value), 0L, 255L)); }

double uniform(Stream& numbers, double low, double high) { return low + (high - low) * numbers.next_unit(); }

double normal(Stream& numbers) {  // Box and Muller
  const double radius = std::sqrt(-2 * std::log(1 - numbers.next_unit()));
  return radius * std::cos(2 * std::numbers::pi * numbers.next_unit());
}

double grey(const uint8_t* pixel) { return 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]; }

template <class Map>
Image mapped(const Image& image, const Map& map) {
  Image result = image;
  std::array<uint8_t, 256> table{};
  for (int i = 0; i < 256; ++i) table[static_cast<size_t>(i)] = map(i);
  for (uint8_t& one : result.pixels) one = table[one];
  return result;
}

// Away from `other` by `factor`: 0 is `other`, 1 the image.
template <class Other>
Image blended(const Image& image, double factor, const Other& other) {
  Image result = image;
  for (size_t at = 0; at < image.pixels.size(); ++at) {
    const double base = other(at);
    result.pixels[at] = level(base + factor * (image.pixels[at] - base));
  }
  return result;
}

double cubic(double t, double before, double one, double two, double behind) {
  return one +
         0.5 * t *
             (two - before + t * (2 * before - 5 * one + 4 * two - behind + t * (3 * (one - two) + behind - before)));
}

// The place (a x + b y + c, d x + e y + f) of the image at every pixel's middle, by cubic interpolation.
Image moved(const Image& image, const std::array<double, 6>& m) {
  Image result = image;
  const auto pixel = [&](int64_t x, int64_t y, size_t c) {
    x = std::clamp<int64_t>(x, 0, image.width - 1);
    y = std::clamp<int64_t>(y, 0, image.height - 1);
    return static_cast<double>(image.pixels[static_cast<size_t>((y * image.width + x) * 3) + c]);
  };
  for (int64_t row = 0; row < image.height; ++row)
    for (int64_t column = 0; column < image.width; ++column) {
      const double x = static_cast<double>(column) + 0.5, y = static_cast<double>(row) + 0.5;
      const double from_x = m[0] * x + m[1] * y + m[2], from_y = m[3] * x + m[4] * y + m[5];
      uint8_t* to = &result.pixels[static_cast<size_t>((row * image.width + column) * 3)];
      if (from_x < 0 || from_y < 0 || from_x >= static_cast<double>(image.width) ||
          from_y >= static_cast<double>(image.height)) {
        std::copy(kFill.begin(), kFill.end(), to);
        continue;
      }
      const double left = std::floor(from_x - 0.5), top = std::floor(from_y - 0.5);
      const double tx = from_x - 0.5 - left, ty = from_y - 0.5 - top;
      const auto ix = static_cast<int64_t>(left), iy = static_cast<int64_t>(top);
      for (size_t c = 0; c < 3; ++c) {
        std::array<double, 4> rows{};
        for (int64_t i = 0; i < 4; ++i)
          rows[static_cast<size_t>(i)] = cubic(tx, pixel(ix - 1, iy + i - 1, c), pixel(ix, iy + i - 1, c),
                                               pixel(ix + 1, iy + i - 1, c), pixel(ix + 2, iy + i - 1, c));
        to[c] = level(cubic(ty, rows[0], rows[1], rows[2], rows[3]));
      }
    }
  return result;
}

Image rotated(const Image& image, double degrees) {
  const double angle = -degrees * std::numbers::pi / 180, c = std::cos(angle), s = std::sin(angle);
  const double x = static_cast<double>(image.width) / 2, y = static_cast<double>(image.height) / 2;
  return moved(image, {c, s, x - c * x - s * y, -s, c, y + s * x - c * y});
}

Image auto_contrast(const Image& image) {
  Image result = image;
  for (size_t c = 0; c < 3; ++c) {
    int least = 255, most = 0;
    for (size_t at = c; at < image.pixels.size(); at += 3) {
      least = std::min<int>(least, image.pixels[at]);
      most = std::max<int>(most, image.pixels[at]);
    }
    if (most <= least) continue;
    for (size_t at = c; at < image.pixels.size(); at += 3)
      result.pixels[at] = level(255.0 * (image.pixels[at] - least) / (most - least));
  }
  return result;
}

// Pillow's ImageOps.equalize, channel by channel.
Image equalised(const Image& image) {
  Image result = image;
  for (size_t c = 0; c < 3; ++c) {
    std::array<int64_t, 256> counts{};
    for (size_t at = c; at < image.pixels.size(); at += 3) ++counts[image.pixels[at]];
    int64_t sum = 0, last = 0, kinds = 0;
    for (const int64_t count : counts) {
      if (count == 0) continue;
      ++kinds;
      last = count;
      sum += count;
    }
    const int64_t step = (sum - last) / 255;
    if (kinds <= 1 || step == 0) continue;
    std::array<uint8_t, 256> table{};
    int64_t below = step / 2;
    for (size_t i = 0; i < 256; ++i) {
      table[i] = static_cast<uint8_t>(std::min<int64_t>(255, below / step));
      below += counts[i];
    }
    for (size_t at = c; at < image.pixels.size(); at += 3) result.pixels[at] = table[image.pixels[at]];
  }
  return result;
}

// Pillow's SMOOTH: the middle five times, its eight neighbours once, over 13; the frame as it is.
Image smoothed(const Image& image) {
  Image result = image;
  const auto at = [&](int64_t row, int64_t column, size_t c) {
    return static_cast<size_t>((row * image.width + column) * 3) + c;
  };
  for (int64_t row = 1; row + 1 < image.height; ++row)
    for (int64_t column = 1; column + 1 < image.width; ++column)
      for (size_t c = 0; c < 3; ++c) {
        int sum = 4 * image.pixels[at(row, column, c)];
        for (int64_t y = -1; y <= 1; ++y)
          for (int64_t x = -1; x <= 1; ++x) sum += image.pixels[at(row + y, column + x, c)];
        result.pixels[at(row, column, c)] = level(sum / 13.0);
      }
  return result;
}

}  // namespace

Box random_crop_box(int64_t height, int64_t width, Stream& numbers) {
  const double area = static_cast<double>(height * width);
  for (int i = 0; i < 10; ++i) {
    const double wanted = area * uniform(numbers, 0.08, 1);
    const double aspect = std::exp(uniform(numbers, std::log(3.0 / 4), std::log(4.0 / 3)));
    const int64_t w = std::lround(std::sqrt(wanted * aspect)), h = std::lround(std::sqrt(wanted / aspect));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    const auto top = static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(height - h + 1)));
    const auto left = static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(width - w + 1)));
    return {top, left, h, w};
  }
  // The middle, cut where the image is wider or higher than any box may be.
  int64_t w = width, h = height;
  if (4 * width < 3 * height) h = std::lround(static_cast<double>(width) / (3.0 / 4));
  else if (3 * width > 4 * height) w = std::lround(static_cast<double>(height) * (4.0 / 3));
  h = std::min(h, height);
  return {(height - h) / 2, (width - w) / 2, h, w};
}

Image centre_crop(const Image& image, int64_t side) {
  const auto shorter = static_cast<int64_t>(static_cast<double>(side) / 0.875);
  const bool wide = image.width > image.height;
  const int64_t height = wide ? shorter : image.height * shorter / image.width;
  const int64_t width = wide ? image.width * shorter / image.height : shorter;
  const Box middle{crop_offset(height, side), crop_offset(width, side), side, side};
  return resized_part(image, {0, 0, image.height, image.width}, height, width, middle);
}

int64_t crop_offset(int64_t length, int64_t side) {
  const int64_t spare = length - side, half = spare / 2;
  return spare % 2 == 0 ? half : half + half % 2;
}

void flip(Image& image) {
  for (int64_t row = 0; row < image.height; ++row)
    for (int64_t column = 0; column < image.width / 2; ++column)
      for (int64_t c = 0; c < image.channels; ++c)
        std::swap(
            image.pixels[static_cast<size_t>((row * image.width + column) * image.channels + c)],
            image.pixels[static_cast<size_t>((row * image.width + image.width - 1 - column) * image.channels + c)]);
}

std::string augment_name(int which) {
  constexpr std::array<const char*, kAugmentOperations> kNames{
      "auto_contrast", "equalise",   "invert",    "rotate",  "posterise", "solarise",    "solarise_add", "colour",
      "contrast",      "brightness", "sharpness", "shear_x", "shear_y",   "translate_x", "translate_y"};
  return kNames.at(static_cast<size_t>(which));
}

Image augmented(const Image& image, int which, double strength, int sign) {
  const double part = strength / 10, signed_part = sign * part, factor = std::max(0.1, 1 + 0.9 * signed_part);
  const std::string name = augment_name(which);
  const double width = static_cast<double>(image.width), height = static_cast<double>(image.height);
  if (name == "auto_contrast") return auto_contrast(image);
  if (name == "equalise") return equalised(image);
  if (name == "invert") return mapped(image, [](int value) { return static_cast<uint8_t>(255 - value); });
  if (name == "rotate") return rotated(image, 30 * signed_part);
  if (name == "posterise") {  // the stronger the fewer bits
    const int bits = 4 - static_cast<int>(part * 4), mask = 0xFF & ~((1 << (8 - bits)) - 1);
    return mapped(image, [mask](int value) { return static_cast<uint8_t>(value & mask); });
  }
  if (name == "solarise") {
    const int threshold = 256 - static_cast<int>(part * 256);
    return mapped(image, [=](int value) { return static_cast<uint8_t>(value < threshold ? value : 255 - value); });
  }
  if (name == "solarise_add") {
    const int more = static_cast<int>(part * 110);
    return mapped(image,
                  [=](int value) { return static_cast<uint8_t>(value < 128 ? std::min(255, value + more) : value); });
  }
  if (name == "colour")
    return blended(image, factor, [&](size_t at) { return std::round(grey(&image.pixels[at - at % 3])); });
  if (name == "contrast") {
    double sum = 0;
    for (size_t at = 0; at < image.pixels.size(); at += 3) sum += std::round(grey(&image.pixels[at]));
    const double mean = std::round(sum / (width * height));
    return blended(image, factor, [mean](size_t) { return mean; });
  }
  if (name == "brightness") return blended(image, factor, [](size_t) { return 0.0; });
  if (name == "sharpness") {
    const Image smooth = smoothed(image);
    return blended(image, factor, [&](size_t at) { return static_cast<double>(smooth.pixels[at]); });
  }
  if (name == "shear_x") return moved(image, {1, 0.3 * signed_part, 0, 0, 1, 0});
  if (name == "shear_y") return moved(image, {1, 0, 0, 0.3 * signed_part, 1, 0});
  if (name == "translate_x") return moved(image, {1, 0, 0.45 * signed_part * width, 0, 1, 0});
  return moved(image, {1, 0, 0, 0, 1, 0.45 * signed_part * height});
}

Image rand_augment(Image image, Stream& numbers) {
  for (int i = 0; i < 2; ++i) {
    const auto which = static_cast<int>(numbers.next_below(kAugmentOperations));
    const bool done = numbers.next_unit() < 0.5;
    const double strength = std::clamp(9 + 0.5 * normal(numbers), 0.0, 10.0);
    const int sign = numbers.next_below(2) == 0 ? 1 : -1;
    if (done) image = augmented(image, which, strength, sign);
  }
  return image;
}

void random_erasing(std::span<float> values, int64_t side, double probability, Stream& numbers) {
  if (numbers.next_unit() >= probability) return;
  const double area = static_cast<double>(side * side);
  for (int i = 0; i < 10; ++i) {
    const double wanted = area * uniform(numbers, 0.02, 1.0 / 3);
    const double aspect = std::exp(uniform(numbers, std::log(0.3), std::log(1 / 0.3)));
    const int64_t h = std::lround(std::sqrt(wanted * aspect)), w = std::lround(std::sqrt(wanted / aspect));
    if (w < 1 || h < 1 || w >= side || h >= side) continue;
    const auto top = static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(side - h + 1)));
    const auto left = static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(side - w + 1)));
    for (int64_t row = top; row < top + h; ++row)
      for (int64_t at = (row * side + left) * 3; at < (row * side + left + w) * 3; ++at)
        values[static_cast<size_t>(at)] = static_cast<float>(normal(numbers));
    return;
  }
}

}  // namespace xformer::data
