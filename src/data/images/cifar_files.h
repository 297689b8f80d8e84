// Where CIFAR-10 lies and its images in order: the batches of the binary or the Python version, in a folder or in
// the publisher's tar.gz, which is streamed.
//
// Looked for are, in this order, data_batch_1.bin to 5, test_batch.bin; data_batch_1 to 5, test_batch; both in the
// folder itself, in cifar-10-batches-bin/ and cifar-10-batches-py/ below it; a cifar-10-*.tar.gz in it.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/progress_callback.h"
#include "data/check.h"
#include "data/source.h"
#include "readers/cifar.h"

namespace xformer::data {

inline constexpr std::array<const char*, 10> kCifarClasses{"airplane", "automobile", "bird",  "cat",  "deer",
                                                           "dog",      "frog",       "horse", "ship", "truck"};

struct CifarFiles {
  static constexpr int64_t kBatches = 6, kImagesPerBatch = 10'000;

  std::vector<Path> batches;  // in order, the test batch last; empty when `archive` is set
  Path archive;               // a tar.gz, or empty
  [[nodiscard]] std::vector<Path> paths() const { return archive.empty() ? batches : std::vector<Path>{archive}; }
};

// `place` is a folder or an archive. None of the files, or not all batches, is a DataError that says what is missing
// and what is there.
[[nodiscard]] CifarFiles find_cifar_files(const Path& place);

// `grey` is row-major. The training images come first, in the order of their batches.
using AddGreyImage =
    std::function<void(Split split, int64_t label, std::span<const uint8_t, readers::cifar::kPixels> grey)>;

// Reads all of it. Returns a sentence for each batch that does not hold 10,000 images, which is accepted.
std::vector<std::string> read_cifar(const CifarFiles& files, const AddGreyImage& add, const ProgressCallback& progress);

// The same with the red, green and blue byte of each pixel, row by row.
using AddColourImage = std::function<void(Split split, int64_t label, std::span<const uint8_t> colours)>;
std::vector<std::string> read_cifar_colours(const CifarFiles& files, const AddColourImage& add,
                                            const ProgressCallback& progress);

// What `data check` says of CIFAR-10 split into 45,000, 5,000 and 10,000 images.
[[nodiscard]] CheckReport check_cifar(const DataSource& source);

}  // namespace xformer::data
