// Density estimation of CIFAR-10 (tasks-more 8): the 3,072 bytes of an image in colour, each to be predicted from those
// before it. A place's label is its byte, its id the byte before it, counted from 1; id 0 stands in front of the first.
#include <cmath>

#include "core/error.h"
#include "data/cache/cache.h"
#include "data/cache/packed_files.h"
#include "data/check.h"
#include "data/generated_source.h"
#include "data/images/cifar_files.h"
#include "data/images/grey_images.h"
#include "data/manifests.h"

namespace xformer::data::adapters::cifar10_density {
namespace {

constexpr int64_t kAdapterVersion = 1;  // part of the cache's key: raise it when the content made here changes
constexpr int64_t kLevels = 256, kDevShare = 25;
constexpr size_t kBytes = readers::cifar::kChannels * readers::cifar::kPixels;

struct Options {
  int64_t split_seed = 0;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema = Schema<Options>().add(
      &Options::split_seed, "split_seed",
      "seed of the split of the training images, one in 25 for dev, apart from the run's seed", at_least(0));
  return kSchema;
}

DataShape shape_of_places() {
  DataShape shape;
  shape.max_len = kBytes;
  shape.vocabulary = kLevels + 1;
  shape.zero_is_padding = false;
  shape.target = place_target(kLevels, {.symbol = "dim", .scoring = "whole images"});
  return shape;
}

// Bytes as they lie in the cache, without answers of their own.
DataShape packed_shape() {
  DataShape shape;
  shape.max_len = kBytes;
  shape.vocabulary = kLevels;
  shape.zero_is_padding = false;
  shape.target = class_target(1);
  return shape;
}

class DensitySource : public DataSource {
 public:
  explicit DensitySource(std::unique_ptr<DataSource> packed) : packed_(std::move(packed)), info_(packed_->info()) {
    info_.shape = shape_of_places();
  }
  [[nodiscard]] int64_t size(Split split) const override { return packed_->size(split); }
  [[nodiscard]] const DataInfo& info() const override { return info_; }
  [[nodiscard]] Example read(Split split, int64_t index) const override {
    static thread_local ExampleBuffers buffers;
    const Example packed = packed_->read(split, index);
    const std::span<const uint8_t> bytes = packed.ids[0];
    buffers.labels.assign(bytes.begin(), bytes.end());
    buffers.wide_ids.assign(bytes.size(), 0);
    for (size_t i = 1; i < bytes.size(); ++i) buffers.wide_ids[i] = static_cast<uint16_t>(bytes[i - 1] + 1);
    return labelled_places(buffers, info_.shape.vocabulary);
  }

 private:
  std::unique_ptr<DataSource> packed_;
  DataInfo info_;
};

void pack(const CifarFiles& files, const Options& options, const AddExample& add, DataInfo& info,
          const ProgressCallback& progress) {
  info.shape = packed_shape();
  info.origin = "files";
  std::vector<uint8_t> train;
  const std::vector<std::string> notes = read_cifar_colours(
      files,
      [&](Split split, std::span<const uint8_t> colours) {
        if (split == Split::kTest) return add(Split::kTest, {{colours}});
        train.insert(train.end(), colours.begin(), colours.end());
      },
      progress);
  const auto count = static_cast<int64_t>(train.size() / kBytes);
  const std::vector<int64_t> order =
      seeded_order(count, static_cast<uint64_t>(options.split_seed), "cifar10-density/split");
  for (int64_t i = 0; i < count; ++i)
    add(i < count / kDevShare ? Split::kDev : Split::kTrain,
        {{std::span(train).subspan(static_cast<size_t>(order[static_cast<size_t>(i)]) * kBytes, kBytes)}});
  info.details["files"] = file_facts(files.paths());
  if (!notes.empty()) info.details["notes"] = notes;
}

std::unique_ptr<DataSource> open(const Json& given, const DataLocation& location, const ProgressCallback& progress) {
  const Options options = schema().read(given);
  require_folder("cifar10-density", "cifar-10-batches-bin, cifar-10-batches-py or the publisher's tar.gz of either",
                 location);
  const CifarFiles files = find_cifar_files(location.folder);
  const Json key{
      {"adapter", kAdapterVersion}, {"split_seed", options.split_seed}, {"files", file_identity(files.paths())}};
  const auto build = [&](const AddExample& add, DataInfo& info) { pack(files, options, add, info, progress); };
  return std::make_unique<DensitySource>(open_cached({location.cache, "cifar10-density", key}, build, progress));
}

CheckReport check(const Json& given, const DataLocation& location, const ProgressCallback& progress) {
  const auto source = open(given, location, progress);
  CheckReport report;
  compare_sizes(*source, {48'000, 2'000, 10'000}, report);
  for (const Json& note : source->info().details.value("notes", Json::array()))
    report.add("every batch is whole", CheckOutcome::kNote, note.get<std::string>());
  check_duplicates(*source, report);
  describe_splits(*source, report);
  check_known_files("cifar10-density", location.folder, report);
  return report;
}

// Its brightness, and the mean of its bytes.
std::string show(const Example& example, const DataInfo&) {
  const std::span<const int32_t> bytes = example.further[0].as<int32_t>();
  std::vector<uint8_t> grey;
  for (size_t i = 0; i + 2 < bytes.size(); i += 3)
    grey.push_back(readers::cifar::grey(static_cast<uint8_t>(bytes[i]), static_cast<uint8_t>(bytes[i + 1]),
                                        static_cast<uint8_t>(bytes[i + 2])));
  return fmt::format("{}{} bytes", drawn_in_letters(grey), bytes.size());
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  DatasetDescriptor density;
  density.name = "cifar10-density";
  density.title = "density of CIFAR-10: the next byte of an image in colour";
  density.paper = "Child, Gray, Radford, Sutskever: Generating Long Sequences with Sparse Transformers, 2019";
  density.source =
      "the binary or Python version from https://www.cs.toronto.edu/~kriz/cifar.html, as it is or unpacked";
  density.default_family = "decoder";
  density.options = schema().options();
  density.shape = [](const Json&) { return shape_of_places(); };
  density.open = open;
  density.check = check;
  density.show = show;
  density.picture = [](const Example& example, const DataInfo&) {
    const std::span<const int32_t> bytes = example.further[0].as<int32_t>();
    const auto side = static_cast<int64_t>(readers::cifar::kSide);
    return readers::Image{side, side, static_cast<int64_t>(readers::cifar::kChannels), {bytes.begin(), bytes.end()}};
  };
  return {density};
}

}  // namespace xformer::data::adapters::cifar10_density
