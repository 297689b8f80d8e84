// Images as a Vision Transformer reads them: decoded when they are asked for, cut to a square and taken apart into
// patches; in training augmented as DeiT's recipe says (Touvron et al. 2021; tasks-more 7).
#pragma once

#include <memory>

#include "data/batches/batcher.h"

namespace xformer::data {

struct ImageOptions {
  int64_t side = 224, patch = 16;
  bool random_crop = true;           // and a flip; else the middle, as in evaluation
  bool rand_augment = true;          // two of fifteen operations
  double erasing = 0.25;             // probability
  double mixup = 0.8, cutmix = 1.0;  // the mixtures' Beta(a, a); 0: none. Both: one of them for each batch
};

// Places are patches, row by row; a place holds its levels, normalised, as [colour][row][column].
[[nodiscard]] int64_t image_places(const ImageOptions& options);
[[nodiscard]] int64_t place_width(const ImageOptions& options);
[[nodiscard]] TargetSpec image_target(int64_t classes, const ImageOptions& options);

// What a packed image's bytes say: where its file is below the root, and the hash that it had.
struct ImageEntry {
  std::string digest;  // 32 hexadecimal digits of the file's SHA-256
  std::string path;
};
[[nodiscard]] std::vector<uint8_t> packed_entry(const ImageEntry& entry);
[[nodiscard]] ImageEntry unpacked_entry(std::span<const uint8_t> bytes);
[[nodiscard]] std::string image_digest(std::span<const std::byte> file);

class ImageSource : public DataSource {
 public:
  // `entries`: packed_entry of each image, with its label.
  ImageSource(Path root, std::unique_ptr<DataSource> entries, const ImageOptions& options);
  [[nodiscard]] int64_t size(Split split) const override { return entries_->size(split); }
  // The middle of the image; an image that no longer decodes is a DataError.
  [[nodiscard]] Example read(Split split, int64_t index) const override;
  [[nodiscard]] Example augmented(Split split, int64_t index, Stream& numbers) const override;
  // Each example with the one as far from the batch's other end (timm's Mixup in batch mode): a weighted sum of both,
  // or a box of the other; the label's share is the weight, or what the box leaves.
  void mix(HostBatch& batch, Stream& numbers) const override;
  [[nodiscard]] std::string name(Split split, int64_t index) const override;
  [[nodiscard]] const DataInfo& info() const override { return info_; }
  [[nodiscard]] bool slow() const override { return true; }
  [[nodiscard]] const DataSource& entries() const { return *entries_; }
  [[nodiscard]] const Path& root() const { return root_; }

 private:
  [[nodiscard]] readers::Image decoded(Split split, int64_t index) const;
  [[nodiscard]] Example example_of(const readers::Image& square, int64_t label, Stream* numbers) const;

  Path root_;
  std::unique_ptr<DataSource> entries_;
  ImageOptions options_;
  DataInfo info_;
};

// Back from patches to an image.
[[nodiscard]] readers::Image image_of(std::span<const float> values, const ImageOptions& options);

}  // namespace xformer::data
