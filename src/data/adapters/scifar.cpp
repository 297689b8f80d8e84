// CIFAR-10 in colour as a sequence (sCIFAR; Gu et al., "On the Parameterization and Initialization of Diagonal State
// Space Models", 2022, and those before; tasks-more 17): 1,024 places, row by row, each of three numbers, red, green
// and blue by x / 255, standardised by channel. The class is one of ten.
#include "core/error.h"
#include "data/cache/cache.h"
#include "data/cache/packed_files.h"
#include "data/check.h"
#include "data/images/cifar_files.h"
#include "data/images/grey_images.h"
#include "data/images/pixel_numbers.h"

namespace xformer::data::adapters::scifar {
namespace {

constexpr int64_t kAdapterVersion = 1;  // part of the cache's key: raise it when the content made here changes
constexpr int64_t kDevShare = 10;
constexpr size_t kColourBytes = readers::cifar::kChannels * readers::cifar::kPixels;

struct Options {
  int64_t split_seed = 0;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema = Schema<Options>().add(
      &Options::split_seed, "split_seed",
      "seed of the split of the training images, a tenth for dev, apart from the run's seed", at_least(0));
  return kSchema;
}

// The means and deviations of the training images, as the papers' code has them.
PixelNumbers colour_numbers() { return {.mean = {0.4914F, 0.4822F, 0.4465F}, .deviation = {0.247F, 0.243F, 0.261F}}; }

DataShape shape_of_pixels() {
  DataShape shape;
  shape.max_len = readers::cifar::kPixels;
  shape.side = readers::cifar::kSide;
  shape.channels = readers::cifar::kChannels;
  shape.width = readers::cifar::kChannels;
  shape.target = class_target(kCifarClasses.size());
  return shape;
}

// Bytes as they lie in the cache.
DataShape packed_shape() {
  DataShape shape = shape_of_pixels();
  shape.max_len = kColourBytes;
  shape.width = 0;
  shape.vocabulary = 256;
  shape.zero_is_padding = false;
  return shape;
}

void pack(const CifarFiles& files, const Options& options, const AddExample& add, DataInfo& info,
          const ProgressCallback& progress) {
  info.shape = packed_shape();
  info.origin = "files";
  std::vector<uint8_t> train;
  std::vector<int64_t> labels;
  const std::vector<std::string> notes = read_cifar_colours(
      files,
      [&](Split split, int64_t label, std::span<const uint8_t> colours) {
        if (split == Split::kTest) return add(Split::kTest, {{colours}, {}, label});
        train.insert(train.end(), colours.begin(), colours.end());
        labels.push_back(label);
      },
      progress);
  const auto count = static_cast<int64_t>(labels.size());
  const std::vector<int64_t> order = seeded_order(count, static_cast<uint64_t>(options.split_seed), "scifar/split");
  for (int64_t i = 0; i < count; ++i) {
    const auto place = static_cast<size_t>(order[static_cast<size_t>(i)]);
    add(i < count / kDevShare ? Split::kDev : Split::kTrain,
        {{std::span(train).subspan(place * kColourBytes, kColourBytes)}, {}, labels[place]});
  }
  info.details["classes"] = kCifarClasses;
  info.details["files"] = file_facts(files.paths());
  if (!notes.empty()) info.details["notes"] = notes;
}

std::unique_ptr<DataSource> open(const Json& given, const DataLocation& location, const ProgressCallback& progress) {
  const Options options = schema().read(given);
  require_folder("scifar", "cifar-10-batches-bin, cifar-10-batches-py or the publisher's tar.gz of either", location);
  const CifarFiles files = find_cifar_files(location.folder);
  const Json key{
      {"adapter", kAdapterVersion}, {"split_seed", options.split_seed}, {"files", file_identity(files.paths())}};
  const auto build = [&](const AddExample& add, DataInfo& info) { pack(files, options, add, info, progress); };
  return pixel_numbers(open_cached({location.cache, "scifar", key}, build, progress), colour_numbers());
}

CheckReport check(const Json& given, const DataLocation& location, const ProgressCallback& progress) {
  return check_cifar(*open(given, location, progress));
}

// Its brightness.
std::string show(const Example& example, const DataInfo&) {
  const std::vector<uint8_t> bytes = pixel_bytes(example, colour_numbers());
  std::vector<uint8_t> grey;
  for (size_t i = 0; i < bytes.size(); i += 3)
    grey.push_back(readers::cifar::grey(bytes[i], bytes[i + 1], bytes[i + 2]));
  return fmt::format("{}label {} ({})", drawn_in_letters(grey), example.label,
                     kCifarClasses.at(static_cast<size_t>(example.label)));
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  DatasetDescriptor scifar;
  scifar.name = "scifar";
  scifar.aliases = {"sequential-cifar"};
  scifar.title = "sequential CIFAR-10: an image in colour, pixel by pixel";
  scifar.paper =
      "Krizhevsky, Learning multiple layers of features from tiny images, 2009; as in Gu et al., On the "
      "Parameterization and Initialization of Diagonal State Space Models, 2022";
  scifar.source = "the binary or Python version from https://www.cs.toronto.edu/~kriz/cifar.html, as it is or unpacked";
  scifar.options = schema().options();
  scifar.shape = [](const Json&) { return shape_of_pixels(); };
  scifar.open = open;
  scifar.check = check;
  scifar.show = show;
  scifar.picture = [](const Example& example, const DataInfo&) {
    const auto side = static_cast<int64_t>(readers::cifar::kSide);
    return readers::Image{side, side, static_cast<int64_t>(readers::cifar::kChannels),
                          pixel_bytes(example, colour_numbers())};
  };
  return {scifar};
}

}  // namespace xformer::data::adapters::scifar
