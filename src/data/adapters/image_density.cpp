// Density estimation of images in a folder (tasks-more 8), each byte to be predicted from those before it:
// `imagenet64-density`, ImageNet made smaller to 64 by 64 pixels, whose 12,288 bytes an image has there, and
// `image-density`, any images, of which the middle square is made data.side pixels wide.
#include <algorithm>

#include "core/error.h"
#include "core/plain_files.h"
#include "data/cache/cache.h"
#include "data/cache/packed_files.h"
#include "data/cache/parallel_packing.h"
#include "data/check.h"
#include "data/class_splits.h"
#include "data/images/density_source.h"
#include "data/images/image_tree.h"
#include "data/images/resample.h"
#include "data/what_is_there.h"
#include "readers/jpeg.h"

namespace xformer::data::adapters::image_density {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kAdapterVersion = 1;  // part of the cache's key: raise it when the content made here changes
constexpr int64_t kImageNetSide = 64;
constexpr int64_t kMostHeldOut = 10'000;                                  // images of train that are dev or test
constexpr std::array<int64_t, 3> kImageNet64{1'271'149, 10'000, 49'999};  // van den Oord et al.'s, 10,000 held out

struct Options {
  int64_t side = 32, split_seed = 0;
  double dev_share = 0.04, test_share = 0.04;
};

const Schema<Options>& schema(bool imagenet) {
  const auto of_shares = [](Schema<Options> first) {
    return first
        .add(&Options::dev_share, "dev_share",
             "share of the training images that is dev where no folder is, 10,000 images at most", fraction_below_one())
        .add(&Options::test_share, "test_share",
             "share of the training images that is test where no folder is, 10,000 images at most",
             fraction_below_one())
        .add(&Options::split_seed, "split_seed", "seed of these shares, apart from the run's seed", at_least(0));
  };
  static const Schema<Options> kImageNet = of_shares({});
  static const Schema<Options> kAny = of_shares(Schema<Options>().add(
      &Options::side, "side", "pixels each way that the middle square of an image is made", between(1, 512)));
  return imagenet ? kImageNet : kAny;
}

Options read_options(bool imagenet, const Json& given) {
  Options options = schema(imagenet).read(given);
  if (imagenet) options.side = kImageNetSide;
  check_shares(options.dev_share, options.test_share);
  return options;
}

struct Images {
  Path root;
  std::array<std::vector<std::string>, 3> of;  // by Split, sorted; below the root; validation counts as dev
  bool named = false;
};

void add_below(const Path& root, const Path& folder, std::vector<std::string>& into) {
  try {
    for (const auto& entry :
         fs::recursive_directory_iterator(folder, fs::directory_options::follow_directory_symlink)) {
      if (!is_image_name(entry.path()) || !other_than_a_file(entry.path()).empty()) continue;
      into.push_back(entry.path().lexically_relative(root).string());
    }
  } catch (const fs::filesystem_error& error) {
    fail_reading(error);
  }
}

// Images in folders whose names say their splits (train_64x64, valid_64x64), or any images in the folder.
Images find_in(const std::string& task, const Path& place) {
  XF_CHECK(fs::is_directory(place), DataError,
           "expected a folder with images, found the file {}; an archive is to be unpacked first", place.string());
  Images images{place, {}, false};
  for (const Path& below : subfolders(place))
    if (const auto split = split_in_name(below.filename().string())) {
      images.named = true;
      add_below(place, below, images.of[static_cast<size_t>(*split)]);
    }
  if (!images.named) add_below(place, place, images.of[0]);
  if (images.of[2].empty()) std::swap(images.of[1], images.of[2]);  // validation alone is the test
  XF_CHECK(
      !images.of[0].empty(), DataError,
      "no training image (.jpeg, .jpg, .png) of {} in {}: expected train/ and test/ (or valid/), or images alone; {}",
      task, place.string(), what_is_there(place));
  for (auto& names : images.of) std::sort(names.begin(), names.end());
  return images;
}

// Moves shares of the training images to the splits that have none.
void hold_out(Images& images, const Options& options) {
  std::vector<std::string> train;
  train.swap(images.of[0]);
  const auto count = static_cast<int64_t>(train.size());
  const auto part = [&](Split split, double share) {
    if (!images.of[static_cast<size_t>(split)].empty()) return int64_t{0};
    return std::min(kMostHeldOut, std::max<int64_t>(static_cast<int64_t>(share * static_cast<double>(count)), 1));
  };
  const int64_t dev = part(Split::kDev, options.dev_share), test = part(Split::kTest, options.test_share);
  XF_CHECK(dev + test < count, DataError, "{}: {} training images, of which {} are to be dev and {} test",
           images.root.string(), count, dev, test);
  const std::vector<int64_t> order =
      seeded_order(count, static_cast<uint64_t>(options.split_seed), "image-density/split");
  for (int64_t i = 0; i < count; ++i)
    images.of[i < dev          ? 1
              : i < dev + test ? 2
                               : 0]
        .push_back(train[static_cast<size_t>(order[static_cast<size_t>(i)])]);
}

std::vector<uint8_t> pixels_of(const Path& path, int64_t side, bool imagenet) {
  readers::Image image = readers::decode_image(MappedFile(path).bytes(), path.string());
  XF_CHECK(!imagenet || (image.width == side && image.height == side), DataError,
           "{}: expected an image of {} by {} pixels, found {} by {}; image-density takes any", path.string(), side,
           side, image.width, image.height);
  if (image.width != side || image.height != side) {
    const int64_t square = std::min(image.width, image.height);
    image = resized(image, {(image.height - square) / 2, (image.width - square) / 2, square, square}, side, side);
  }
  return std::move(image.pixels);
}

void pack(const Images& images, const Options& options, bool imagenet, const AddExample& add, DataInfo& info,
          const ProgressCallback& progress) {
  info.shape = packed_density_shape(options.side);
  info.origin = "files";
  std::vector<std::pair<Split, std::string>> all;
  for (const Split split : kAllSplits)
    for (const std::string& name : images.of[static_cast<size_t>(split)]) all.emplace_back(split, name);
  add_in_order(
      static_cast<int64_t>(all.size()),
      [&](int64_t i) {
        const auto& [split, name] = all[static_cast<size_t>(i)];
        return MadeExample{split, pixels_of(images.root / name, options.side, imagenet), 0};
      },
      add, "decoding images", progress);
  info.details = {{"images", all.size()}, {"side", options.side}, {"split", images.named ? "files" : "own"}};
}

std::unique_ptr<DataSource> open(const std::string& name, bool imagenet, const Json& given,
                                 const DataLocation& location, const ProgressCallback& progress) {
  const Options options = read_options(imagenet, given);
  require_folder(name, "a folder of images, or train/ and valid/ (or test/) with images", location);
  Images images = find_or_offer(location.folder, [&](const Path& place) { return find_in(name, place); });
  std::vector<std::string> names;
  for (const auto& some : images.of) names.insert(names.end(), some.begin(), some.end());
  Json key = schema(imagenet).write(options);
  key.update({{"adapter", kAdapterVersion}, {"side", options.side}, {"files", tree_identity(images.root, names)}});
  const auto build = [&](const AddExample& add, DataInfo& info) {
    hold_out(images, options);
    pack(images, options, imagenet, add, info, progress);
  };
  return density_source(open_cached({location.cache, "image-density", key}, build, progress), options.side);
}

CheckReport check(const std::string& name, bool imagenet, const Json& given, const DataLocation& location,
                  const ProgressCallback& progress) {
  const auto source = open(name, imagenet, given, location, progress);
  const Json& details = source->info().details;
  CheckReport report;
  report.add("every image decodes", CheckOutcome::kPassed,
             fmt::format("{} images, made {} by {} pixels", details["images"].get<int64_t>(),
                         details["side"].get<int64_t>(), details["side"].get<int64_t>()));
  if (imagenet) compare_sizes(*source, kImageNet64, report);
  if (details["split"] == "own")
    report.add("folders say what is train, dev and test", CheckOutcome::kNote,
               "what no folder is named for is drawn from all images, by data.split_seed");
  check_duplicates(*source, report);
  describe_splits(*source, report);
  return report;
}

DatasetDescriptor descriptor(const std::string& name) {
  const bool imagenet = name == "imagenet64-density";
  DatasetDescriptor result;
  result.name = name;
  result.default_family = "decoder";
  result.options = schema(imagenet).options();
  result.shape = [imagenet](const Json& options) { return density_shape(read_options(imagenet, options).side); };
  result.check_options = [imagenet](const Json& options) { static_cast<void>(read_options(imagenet, options)); };
  result.open = [name, imagenet](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
    return open(name, imagenet, options, location, progress);
  };
  result.check = [name, imagenet](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
    return check(name, imagenet, options, location, progress);
  };
  result.show = density_shown;
  result.picture = density_picture;
  return result;
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  DatasetDescriptor imagenet = descriptor("imagenet64-density"), any = descriptor("image-density");
  imagenet.title = "density of ImageNet at 64 x 64: the next byte";
  imagenet.paper = "van den Oord et al., Pixel Recurrent Neural Networks, 2016";
  imagenet.source = "train_64x64 and valid_64x64 from https://image-net.org (downsampled images, PNG), unpacked";
  any.title = "density of any images: the next byte of an image in colour";
  any.paper = "this project's own";
  any.source = "any JPEG or PNG images in a folder";
  return {imagenet, any};
}

}  // namespace xformer::data::adapters::image_density
