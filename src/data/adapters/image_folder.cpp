// Images in folders by class (tasks-more 7): `imagenet`, which is taken for ImageNet-1k only with its classes and
// counts, and `image-folder`, any such tree. What is packed is the list of images that decode; a batch decodes them
// anew.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>

#include "core/error.h"
#include "data/cache/cache.h"
#include "data/cache/packed_files.h"
#include "data/cache/parallel_packing.h"
#include "data/check.h"
#include "data/duplicates.h"
#include "data/images/image_source.h"
#include "data/images/image_tree.h"
#include "readers/jpeg.h"

namespace xformer::data::adapters::image_folder {
namespace {

constexpr int64_t kAdapterVersion = 1;  // part of the cache's key: raise it when the content made here changes
constexpr int64_t kClasses = 1000, kTrain = 1'281'167, kVal = 50'000;  // of ImageNet-1k (ILSVRC 2012)

struct Options : ImageOptions {
  std::string dev = "test";
  int64_t split_seed = 0, max_undecodable = 50;
};

template <class T>
T Options::*own(T ImageOptions::*field) {
  return field;
}

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(own(&ImageOptions::side), "side", "pixels of the square that is cut out", between(8, 2048))
          .add(own(&ImageOptions::patch), "patch", "pixels of a patch's side; it divides data.side", between(1, 256))
          .add(own(&ImageOptions::random_crop), "random_crop",
               "in training a random box of 8 to 100 % of the area, and a flip; else the middle")
          .add(own(&ImageOptions::rand_augment), "rand_augment",
               "in training two of RandAugment's operations (rand-m9-mstd0.5-inc1)")
          .add(own(&ImageOptions::erasing), "erasing", "share of training images of which a box becomes noise",
               between(0, 1))
          .add(own(&ImageOptions::mixup), "mixup",
               "training batches are sums of two images each, by a weight from Beta(a, a) for this a; 0: not; both "
               "this and cutmix: one of them for each batch",
               between(0, 2))
          .add(own(&ImageOptions::cutmix), "cutmix",
               "training images get a box of another one, of a share from 1 - Beta(a, a) for this a; 0: not",
               between(0, 2))
          .add(&Options::dev, "dev", "test: val is dev and test, as published; holdout: dev is a tenth of train",
               one_of({"test", "holdout"}))
          .add(&Options::split_seed, "split_seed", "seed of that tenth, apart from the run's seed", at_least(0))
          .add(&Options::max_undecodable, "max_undecodable",
               "files that do not decode are left out and counted, up to so many", at_least(0));
  return kSchema;
}

Options read_options(const Json& options) { return schema().read(options); }

// The packed list; its shape is that of file names.
void pack(const ImageTree& tree, const Options& options, const AddExample& add, DataInfo& info,
          const ProgressCallback& progress) {
  struct Job {
    Split split;
    const ImageFile* image;
  };
  std::vector<Job> jobs;
  const auto train = static_cast<int64_t>(tree.train.size());
  std::vector<uint8_t> held(tree.train.size(), 0);
  if (options.dev == "holdout") {
    const auto order = seeded_order(train, static_cast<uint64_t>(options.split_seed), "image-folder/holdout");
    for (int64_t i = 0; i < train / 10; ++i) held[static_cast<size_t>(order[static_cast<size_t>(i)])] = 1;
  }
  for (size_t i = 0; i < tree.train.size(); ++i)
    jobs.push_back({held[i] != 0 ? Split::kDev : Split::kTrain, &tree.train[i]});
  for (const ImageFile& image : tree.val) jobs.push_back({Split::kTest, &image});
  info.origin = "files";
  info.shape.vocabulary = 256;
  info.shape.max_len = 1 << 16;
  info.shape.target = class_target(static_cast<int64_t>(tree.classes.size()));
  std::mutex mutex;
  std::vector<std::string> undecodable;
  std::array<int64_t, 3> left_out{};
  const auto make = [&](int64_t number) -> std::optional<MadeExample> {
    const auto& [split, image] = jobs[static_cast<size_t>(number)];
    const MappedFile file(tree.root / image->path);
    try {
      (void)readers::decode_image(file.bytes(), (tree.root / image->path).string());
    } catch (const DataError& error) {
      const std::lock_guard lock(mutex);
      undecodable.push_back(error.what());
      ++left_out[static_cast<size_t>(split)];
      XF_CHECK(static_cast<int64_t>(undecodable.size()) <= options.max_undecodable, DataError,
               "{} images do not decode, data.max_undecodable allows {}; the last: {}", undecodable.size(),
               options.max_undecodable, error.what());
      return std::nullopt;
    }
    return MadeExample{split, packed_entry({image_digest(file.bytes()), image->path}), image->label};
  };
  const auto add_each = [&](Split split, const Example& example) {
    add(split, example);
    if (split == Split::kTest && options.dev == "test") add(Split::kDev, example);
  };
  add_in_order(static_cast<int64_t>(jobs.size()), make, add_each, "decoding every image once", progress);
  std::sort(undecodable.begin(), undecodable.end());
  for (const Split split : {Split::kTrain, Split::kTest}) {
    const auto found = std::count_if(jobs.begin(), jobs.end(), [split](const Job& job) { return job.split == split; });
    XF_CHECK(found > left_out[static_cast<size_t>(split)], DataError,
             "{}: none of the {} images of {} decodes; the first: {}", tree.root.string(), found, split_name(split),
             undecodable.empty() ? "there is none" : undecodable.front());
  }
  for (const Split split : kAllSplits)
    if (const int64_t count = left_out[static_cast<size_t>(split)]; count > 0)
      info.dropped.push_back({split, "the file does not decode as an image", count});
  info.details = {{"files", {{"train", tree.train.size()}, {"val", tree.val.size()}}},
                  {"classes", tree.classes},
                  {"classes_without_val", tree.without_val},
                  {"other_files", tree.other_files},
                  {"folders_in_classes", tree.folders},
                  {"dead_links", tree.dead_links},
                  {"undecodable", undecodable},
                  {"dev", options.dev}};
}

std::unique_ptr<ImageSource> open(const std::string& name, const Json& given, const DataLocation& location,
                                  const ProgressCallback& progress) {
  const Options options = read_options(given);
  require_folder(name, "train/<class>/ and val/<class>/ with .JPEG or .png images", location);
  const ImageTree tree = find_image_tree(location.folder);
  const auto classes = static_cast<int64_t>(tree.classes.size());
  const auto train = static_cast<int64_t>(tree.train.size()), val = static_cast<int64_t>(tree.val.size());
  XF_CHECK(name != "imagenet" || (classes == kClasses && train == kTrain && val == kVal), DataError,
           "{}: this is not ImageNet-1k, which has {} classes with {} images to train on and {} to validate; found {} "
           "classes, {} and {}. Any tree is --task image-folder",
           location.folder.string(), kClasses, kTrain, kVal, classes, train, val);
  const Json key{{"adapter", kAdapterVersion},
                 {"dev", options.dev},
                 {"split_seed", options.split_seed},
                 {"max_undecodable", options.max_undecodable},
                 {"files", {train, val}},
                 {"tree", tree.identity}};
  const auto build = [&](const AddExample& add, DataInfo& info) { pack(tree, options, add, info, progress); };
  return std::make_unique<ImageSource>(tree.root, open_cached({location.cache, name, key}, build, progress), options);
}

// Images that one thread reads in a second, from some of the training split.
double images_per_second(const ImageSource& source, bool augment) {
  constexpr int64_t kMost = 100;
  const int64_t count = std::min(kMost, source.size(Split::kTrain));
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < count; ++i) {
    Stream numbers(0, static_cast<uint64_t>(i));
    (void)(augment ? source.augmented(Split::kTrain, i, numbers) : source.read(Split::kTrain, i));
  }
  return static_cast<double>(count) / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Whether each file still has the bytes that were packed.
void check_files(const ImageSource& source, CheckReport& report, const ProgressCallback& progress) {
  DuplicateFinder duplicates({"train", "dev", "test"});
  std::string changed;
  int64_t count = 0;
  for (const Split split : kAllSplits) {
    if (split == Split::kDev && source.info().dev_is_test()) continue;
    for (int64_t i = 0; i < source.size(split); ++i) {
      const Example example = source.entries().read(split, i);
      const ImageEntry entry = unpacked_entry(example.ids[0]);
      duplicates.see(split, i, {reinterpret_cast<const uint8_t*>(entry.digest.data()), entry.digest.size()},
                     static_cast<double>(example.label));
      if (image_digest(MappedFile(source.root() / entry.path).bytes()) != entry.digest && count++ == 0)
        changed = entry.path;
      if (progress && i % 256 == 0)
        progress("comparing files", static_cast<uint64_t>(i), static_cast<uint64_t>(source.size(split)));
    }
  }
  report.add("every file is the one that was packed", count == 0 ? CheckOutcome::kPassed : CheckOutcome::kFailed,
             count == 0 ? "the hashes agree" : fmt::format("{} are not; the first: {}", count, changed));
  report_duplicates(duplicates, source, report);
}

CheckReport check(const std::string& name, const Json& given, const DataLocation& location,
                  const ProgressCallback& progress) {
  const auto source = open(name, given, location, progress);
  const Json& details = source->info().details;
  CheckReport report;
  for (const Dropped& dropped : source->info().dropped)
    report.add(
        "every image decodes", CheckOutcome::kNote,
        fmt::format("images of {} that do not decode and are left out: {}; the first: {}", split_name(dropped.split),
                    dropped.count, details["undecodable"].front().get<std::string>()));
  if (const size_t missing = details["classes_without_val"].size(); missing > 0)
    report.add("every class is validated", CheckOutcome::kNote,
               fmt::format("classes that val lacks: {}; the first: {}", missing,
                           details["classes_without_val"][0].get<std::string>()));
  for (const auto& [key, what] : {std::pair{"other_files", "files in classes' folders whose names are no image's"},
                                  std::pair{"folders_in_classes", "folders in classes' folders, which are not read"},
                                  std::pair{"dead_links", "links in classes' folders that lead nowhere"}})
    if (const int64_t count = details.value(key, int64_t{0}); count > 0)
      report.add("a class's folder holds images alone", CheckOutcome::kNote, fmt::format("{}: {}", what, count));
  check_files(*source, report, progress);
  report.add("one core reads so many images a second", CheckOutcome::kNote,
             fmt::format("one core reads {:.0f} images a second, {:.0f} with the training's augmentation",
                         images_per_second(*source, false), images_per_second(*source, true)));
  describe_splits(source->entries(), report);
  for (Json& split : report.splits) split.erase("length");  // of the names
  return report;
}

DatasetDescriptor descriptor(const std::string& name, int64_t classes) {
  DatasetDescriptor result;
  result.name = name;
  result.paper =
      "Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, 2015; as in Touvron et al., "
      "Training data-efficient image transformers, 2021";
  result.default_family = "vit";
  result.options = schema().options();
  result.shape_is_likely = name != "imagenet";
  result.shape = [classes](const Json& given) {
    const Options options = read_options(given);
    DataShape shape;
    shape.max_len = image_places(options);
    shape.width = place_width(options);
    shape.target = image_target(classes, options);
    return shape;
  };
  result.check_options = [](const Json& given) {
    const Options options = read_options(given);
    XF_CHECK(options.side % options.patch == 0, UserError, "data.patch: expected a divisor of data.side = {}, got {}",
             options.side, options.patch);
  };
  result.open = [name](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
    return open(name, options, location, progress);
  };
  result.check = [name](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
    return check(name, options, location, progress);
  };
  result.show = [](const Example& example, const DataInfo& info) {
    return fmt::format("{} patches, label {} ({})", example.values.size() / static_cast<size_t>(info.shape.width),
                       example.label, info.details["classes"][static_cast<size_t>(example.label)].get<std::string>());
  };
  result.picture = [](const Example& example, const DataInfo& info) {
    ImageOptions options;
    options.patch = std::lround(std::sqrt(static_cast<double>(info.shape.width) / 3));
    options.side = options.patch * std::lround(std::sqrt(static_cast<double>(info.shape.max_len)));
    return image_of(example.values, options);
  };
  return result;
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  DatasetDescriptor imagenet = descriptor("imagenet", kClasses);
  imagenet.title = "ImageNet-1k: which of 1,000 classes a photograph shows";
  imagenet.aliases = {"imagenet-1k"};
  imagenet.source = "https://www.image-net.org (after registration), unpacked into train/<class>/ and val/<class>/";
  DatasetDescriptor folder = descriptor("image-folder", 10);
  folder.title = "images in folders by class, train/<class>/ and val/<class>/";
  folder.source = "any such tree of JPEG or PNG images";
  return {imagenet, folder};
}

}  // namespace xformer::data::adapters::image_folder
