// Density estimation of CIFAR-10 (tasks-more 8): the 3,072 bytes of an image in colour, each to be predicted from those
// before it. A place's label is its byte, its id the byte before it, counted from 1; id 0 stands in front of the first.
#include "core/error.h"
#include "data/cache/cache.h"
#include "data/cache/packed_files.h"
#include "data/check.h"
#include "data/images/cifar_files.h"
#include "data/images/density_source.h"
#include "data/manifests.h"

namespace xformer::data::adapters::cifar10_density {
namespace {

constexpr int64_t kAdapterVersion = 1;  // part of the cache's key: raise it when the content made here changes
constexpr int64_t kSide = readers::cifar::kSide, kDevShare = 25;
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

void pack(const CifarFiles& files, const Options& options, const AddExample& add, DataInfo& info,
          const ProgressCallback& progress) {
  info.shape = packed_density_shape(kSide);
  info.origin = "files";
  std::vector<uint8_t> train;
  const std::vector<std::string> notes = read_cifar_colours(
      files,
      [&](Split split, int64_t, std::span<const uint8_t> colours) {
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
  return density_source(open_cached({location.cache, "cifar10-density", key}, build, progress), kSide);
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
  density.shape = [](const Json&) { return density_shape(kSide); };
  density.open = open;
  density.check = check;
  density.show = density_shown;
  density.picture = density_picture;
  return {density};
}

}  // namespace xformer::data::adapters::cifar10_density
