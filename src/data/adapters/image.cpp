// CIFAR-10 in grey, pixel by pixel (Long Range Arena "Image", lra-recipe 3.4): 1,024 grey levels, row by row, each
// level its own id; the class is one of ten.
#include "core/error.h"
#include "data/cache/cache.h"
#include "data/cache/packed_files.h"
#include "data/check.h"
#include "data/images/cifar_files.h"
#include "data/images/grey_images.h"

namespace xformer::data::adapters::image {
namespace {

constexpr int64_t kAdapterVersion = 2;  // part of the cache's key: raise it when the content made here changes
constexpr int64_t kSide = 32, kPixels = kSide * kSide;

struct Options {
  bool mask_zero_pixels = true;
  int64_t split_seed = 0;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::mask_zero_pixels, "mask_zero_pixels",
               "black pixels count as padding, as in both published code bases, whose mask is id > 0")
          .add(&Options::split_seed, "split_seed",
               "seed of the split of the training images, a tenth for dev, apart from the run's seed", at_least(0));
  return kSchema;
}

Options read_options(const Json& options) { return schema().read(options); }

DataShape shape_of(const Options& options) {
  DataShape shape;
  shape.max_len = kPixels;
  shape.side = kSide;
  shape.vocabulary = 256;
  shape.zero_is_padding = options.mask_zero_pixels;
  shape.target = class_target(10);
  return shape;
}

void pack(const CifarFiles& files, const Options& options, const AddExample& add, DataInfo& info,
          const ProgressCallback& progress) {
  std::vector<uint8_t> train;
  std::vector<int64_t> labels;
  info.shape = shape_of({});
  info.origin = "files";
  const std::vector<std::string> notes = read_cifar(
      files,
      [&](Split split, int64_t label, std::span<const uint8_t, kPixels> grey) {
        if (split == Split::kTest) return add(Split::kTest, {{grey}, {}, label});
        train.insert(train.end(), grey.begin(), grey.end());
        labels.push_back(label);
      },
      progress);
  const auto count = static_cast<int64_t>(labels.size());
  const std::vector<int64_t> order = seeded_order(count, static_cast<uint64_t>(options.split_seed), "image/split");
  for (int64_t i = 0; i < count; ++i) {
    const auto place = static_cast<size_t>(order[static_cast<size_t>(i)]);
    add(i < count / 10 ? Split::kDev : Split::kTrain,
        {{std::span(train).subspan(place * kPixels, kPixels)}, {}, labels[place]});
  }
  info.details["classes"] = kCifarClasses;
  info.details["files"] = file_facts(files.paths());
  if (!notes.empty()) info.details["notes"] = notes;
}

std::unique_ptr<DataSource> open(const Json& given, const DataLocation& location, const ProgressCallback& progress) {
  const Options options = read_options(given);
  require_folder("image", "cifar-10-batches-bin, cifar-10-batches-py or the publisher's tar.gz of either", location);
  const CifarFiles files = find_cifar_files(location.folder);
  const Json key{
      {"adapter", kAdapterVersion}, {"split_seed", options.split_seed}, {"files", file_identity(files.paths())}};
  const auto build = [&](const AddExample& add, DataInfo& info) { pack(files, options, add, info, progress); };
  const auto planned = [&](DataShape& shape) { shape = shape_of(options); };
  return open_cached({location.cache, "image", key, planned}, build, progress);
}

CheckReport check(const Json& given, const DataLocation& location, const ProgressCallback& progress) {
  return check_cifar(*open(given, location, progress));
}

std::string show(const Example& example, const DataInfo&) {
  return fmt::format("{}label {} ({})", drawn_in_letters(example.ids[0]), example.label,
                     kCifarClasses.at(static_cast<size_t>(example.label)));
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  DatasetDescriptor image;
  image.name = "image";
  image.aliases = {"lra-image", "cifar10"};
  image.title = "Image: CIFAR-10 in grey, pixel by pixel";
  image.paper =
      "Krizhevsky, Learning multiple layers of features from tiny images, 2009; as in Tay et al., Long Range Arena, "
      "2021";
  image.source = "the binary or Python version from https://www.cs.toronto.edu/~kriz/cifar.html, as it is or unpacked";
  image.options = schema().options();
  image.masked_share = 0.5;
  image.shape = [](const Json& options) { return shape_of(read_options(options)); };
  image.open = open;
  image.check = check;
  image.show = show;
  image.picture = [](const Example& example, const DataInfo&) { return grey_image(example.ids[0]); };
  return {image};
}

}  // namespace xformer::data::adapters::image
