#include "data/images/image_source.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "core/hash.h"
#include "data/images/augment.h"
#include "readers/jpeg.h"

namespace xformer::data {
namespace {

using readers::Image;

constexpr size_t kDigestDigits = 32;
constexpr std::array<float, 3> kMean{0.485F, 0.456F, 0.406F}, kDeviation{0.229F, 0.224F, 0.225F};  // of ImageNet

// Where the level of a pixel lies among an image's values.
class PatchIndex {
 public:
  explicit PatchIndex(const ImageOptions& options) : patch_(options.patch), grid_(options.side / options.patch) {}
  [[nodiscard]] size_t operator()(int64_t row, int64_t column, int64_t colour) const {
    const int64_t place = row / patch_ * grid_ + column / patch_;
    return static_cast<size_t>(((place * 3 + colour) * patch_ + row % patch_) * patch_ + column % patch_);
  }

 private:
  int64_t patch_, grid_;
};

// Beta(a, a) for a of at most 2 (Joehnk 1964).
double next_beta(double a, Stream& numbers) {
  while (true) {
    const double x = std::pow(numbers.next_unit(), 1 / a), y = std::pow(numbers.next_unit(), 1 / a);
    if (x + y <= 1 && x + y > 0) return x / (x + y);
  }
}

}  // namespace

int64_t image_places(const ImageOptions& options) {
  return (options.side / options.patch) * (options.side / options.patch);
}

int64_t place_width(const ImageOptions& options) { return 3 * options.patch * options.patch; }

std::vector<uint8_t> packed_entry(const ImageEntry& entry) {
  const std::string text = entry.digest + entry.path;
  return {text.begin(), text.end()};
}

ImageEntry unpacked_entry(std::span<const uint8_t> bytes) {
  const std::string text(bytes.begin(), bytes.end());
  return {text.substr(0, kDigestDigits), text.substr(std::min(kDigestDigits, text.size()))};
}

std::string image_digest(std::span<const std::byte> file) {
  return sha256({reinterpret_cast<const char*>(file.data()), file.size()}).substr(0, kDigestDigits);
}

TargetSpec image_target(int64_t classes, const ImageOptions& options) {
  return class_target(classes, {.top5 = classes > 5, .mixed = options.mixup > 0 || options.cutmix > 0});
}

ImageSource::ImageSource(Path root, std::unique_ptr<DataSource> entries, const ImageOptions& options)
    : root_(std::move(root)), entries_(std::move(entries)), options_(options), info_(entries_->info()) {
  info_.shape.max_len = image_places(options);
  info_.shape.vocabulary = 0;
  info_.shape.width = place_width(options);
  info_.shape.target = image_target(info_.shape.target.classes(), options);
}

std::string ImageSource::name(Split split, int64_t index) const {
  return unpacked_entry(entries_->read(split, index).ids[0]).path;
}

Image ImageSource::decoded(Split split, int64_t index) const {
  const Path path = root_ / name(split, index);
  return readers::decode_image(MappedFile(path).bytes(), path.string());
}

Example ImageSource::read(Split split, int64_t index) const {
  return example_of(centre_crop(decoded(split, index), options_.side), entries_->read(split, index).label, nullptr);
}

Example ImageSource::augmented(Split split, int64_t index, Stream& numbers) const {
  const Image whole = decoded(split, index);
  Image square;
  if (options_.random_crop) {
    square = resized(whole, random_crop_box(whole.height, whole.width, numbers), options_.side, options_.side);
    if (numbers.next_below(2) == 1) flip(square);
  } else {
    square = centre_crop(whole, options_.side);
  }
  if (options_.rand_augment) square = rand_augment(std::move(square), numbers);
  return example_of(square, entries_->read(split, index).label, &numbers);
}

// The values stay until the same thread makes the next.
Example ImageSource::example_of(const Image& square, int64_t label, Stream* numbers) const {
  static thread_local std::vector<float> pixels, values;
  pixels.resize(square.pixels.size());
  for (size_t at = 0; at < pixels.size(); ++at)
    pixels[at] = (static_cast<float>(square.pixels[at]) / 255.0F - kMean[at % 3]) / kDeviation[at % 3];
  if (numbers != nullptr && options_.erasing > 0) random_erasing(pixels, options_.side, options_.erasing, *numbers);
  values.resize(pixels.size());
  const PatchIndex index(options_);
  size_t at = 0;
  for (int64_t row = 0; row < options_.side; ++row)
    for (int64_t column = 0; column < options_.side; ++column)
      for (int64_t colour = 0; colour < 3; ++colour) values[index(row, column, colour)] = pixels[at++];
  Example example;
  example.values = values;
  example.label = label;
  return example;
}

void ImageSource::mix(HostBatch& batch, Stream& numbers) const {
  const bool boxes = options_.cutmix > 0 && (options_.mixup == 0 || numbers.next_below(2) == 1);
  const double a = boxes ? options_.cutmix : options_.mixup;
  if (a == 0) return;
  double share = next_beta(a, numbers);
  const int64_t side = options_.side, count = batch.filled;
  const size_t size = static_cast<size_t>(image_places(options_) * place_width(options_));
  std::vector<float>&values = batch.numbers("values"), &shares = batch.numbers("share");
  std::vector<int64_t>&labels = batch.whole("label"), &second_labels = batch.whole("second_label");
  XF_ASSERT(values.size() == size * static_cast<size_t>(batch.batch), "a batch of other images");
  int64_t top = 0, low = 0, left = 0, right = 0;
  if (boxes) {  // as wide and high as its share of the area says, around any pixel, cut where it leaves the image
    const auto half = static_cast<int64_t>(static_cast<double>(side) * std::sqrt(1 - share)) / 2;
    const auto row = static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(side)));
    const auto column = static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(side)));
    top = std::max<int64_t>(0, row - half), low = std::min(side, row + half);
    left = std::max<int64_t>(0, column - half), right = std::min(side, column + half);
    share = 1 - static_cast<double>((low - top) * (right - left)) / static_cast<double>(side * side);
  }
  const auto weight = static_cast<float>(share);
  const PatchIndex index(options_);
  for (int64_t row = 0; row < count; ++row) {
    const int64_t other = count - 1 - row;
    second_labels[static_cast<size_t>(row)] = labels[static_cast<size_t>(other)];
    shares[static_cast<size_t>(row)] = weight;
    if (other < row) continue;  // both are done at once
    float* const one = values.data() + static_cast<size_t>(row) * size;
    float* const two = values.data() + static_cast<size_t>(other) * size;
    if (one == two) continue;  // the middle of an odd number, with itself
    if (!boxes) {
      for (size_t at = 0; at < size; ++at) {
        const float first = one[at], second = two[at];
        one[at] = weight * first + (1 - weight) * second;
        two[at] = weight * second + (1 - weight) * first;
      }
      continue;
    }
    for (int64_t y = top; y < low; ++y)
      for (int64_t x = left; x < right; ++x)
        for (int64_t colour = 0; colour < 3; ++colour) std::swap(one[index(y, x, colour)], two[index(y, x, colour)]);
  }
}

Image image_of(std::span<const float> values, const ImageOptions& options) {
  Image image{options.side, options.side, 3, {}};
  const PatchIndex index(options);
  for (int64_t row = 0; row < options.side; ++row)
    for (int64_t column = 0; column < options.side; ++column)
      for (int64_t colour = 0; colour < 3; ++colour) {
        const auto c = static_cast<size_t>(colour);
        const float level = 255.0F * (values[index(row, column, colour)] * kDeviation[c] + kMean[c]);
        image.pixels.push_back(static_cast<uint8_t>(std::lround(std::clamp(level, 0.0F, 255.0F))));
      }
  return image;
}

}  // namespace xformer::data
