// Images and labels in IDX files, as MNIST and what followed it come: four files in one folder, plain or gzip.
//
// Looked for are names with "train-images" and "train-labels", and with "t10k-" or "test-" in place of "train-", that
// go on with "idx3-ubyte" or "idx1-ubyte" behind '-' or '.'; in the folder itself, then in raw/ (and <Name>/raw/, as
// torchvision keeps them). A plain file wins over the same with .gz.
#pragma once

#include "data/source.h"
#include "readers/idx.h"

namespace xformer::data {

struct IdxFiles {
  Path train_images, train_labels, test_images, test_labels;
  [[nodiscard]] std::vector<Path> paths() const { return {train_images, train_labels, test_images, test_labels}; }
};

// DataErrors: none or not all of the four, two sets in one folder.
[[nodiscard]] IdxFiles find_idx_files(const Path& place);

// Images of one file with their labels. DataErrors: other counts of the two, and what readers::read_idx refuses.
struct LabelledImages {
  int64_t rows = 0, columns = 0;
  std::vector<uint8_t> pixels;  // [images, rows, columns]
  std::vector<uint8_t> labels;
};
[[nodiscard]] LabelledImages read_labelled_images(const Path& images, const Path& labels);

}  // namespace xformer::data
