// Images in IDX files, pixel by pixel (tasks-more 17): `smnist`, MNIST's digits row by row (Le, Jaitly, Hinton 2015),
// `psmnist`, the same in one fixed order of the pixels, and `smnist/<name>`, any other such set. A place holds one
// number, x / 255.
#include "core/error.h"
#include "data/cache/cache.h"
#include "data/cache/packed_files.h"
#include "data/check.h"
#include "data/images/grey_images.h"
#include "data/images/idx_files.h"
#include "data/images/pixel_numbers.h"

namespace xformer::data::adapters::smnist {
namespace {

constexpr int64_t kAdapterVersion = 1;  // part of the cache's key: raise it when the content made here changes
constexpr int64_t kSide = 28, kClasses = 10, kDevShare = 10;

struct Options {
  std::string permutation = "none";
  int64_t split_seed = 42;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::permutation, "permutation",
               "order of the pixels: none (row by row), bitreverse (bits of their numbers reversed, as S4 and S5 have "
               "it) or random-92916 (NumPy's of that seed, as in older papers); results of two orders cannot be "
               "compared",
               one_of(kPixelOrders))
          .add(&Options::split_seed, "split_seed",
               "seed of the split of the training images, a tenth for dev, apart from the run's seed", at_least(0));
  return kSchema;
}

struct Set {
  std::string name, title;
  bool mnist = false;  // whose sizes are known
  std::string permutation = "none";
};

std::vector<OptionInfo> options_of(const Set& set) {
  std::vector<OptionInfo> result = schema().options();
  for (OptionInfo& option : result)
    if (option.name == "permutation") option.fallback = set.permutation;
  return result;
}

Options read_options(const Set& set, const Json& given) {
  Json all{{"permutation", set.permutation}};
  all.update(given);
  return schema().read(all);
}

// Bytes as they lie in the cache.
DataShape packed_shape(int64_t side, int64_t classes) {
  DataShape shape;
  shape.max_len = side * side;
  shape.side = side;
  shape.vocabulary = 256;
  shape.zero_is_padding = false;
  shape.target = class_target(classes);
  return shape;
}

DataShape shape_of(const Options& options) {
  DataShape shape;
  shape.max_len = kSide * kSide;
  shape.side = options.permutation == "none" ? kSide : 0;
  shape.width = 1;
  shape.target = class_target(kClasses);
  return shape;
}

void pack(const Set& set, const IdxFiles& files, const Options& options, const AddExample& add, DataInfo& info,
          const ProgressCallback& progress) {
  if (progress) progress("reading images", 0, 2);
  const LabelledImages train = read_labelled_images(files.train_images, files.train_labels);
  if (progress) progress("reading images", 1, 2);
  const LabelledImages test = read_labelled_images(files.test_images, files.test_labels);
  XF_CHECK(train.rows == test.rows && train.columns == test.columns, DataError,
           "{} has images of {} x {}, {} of {} x {}", files.train_images.string(), train.rows, train.columns,
           files.test_images.string(), test.rows, test.columns);
  XF_CHECK(train.rows == train.columns, DataError, "{}: expected square images, found {} x {}",
           files.train_images.string(), train.rows, train.columns);
  XF_CHECK(!set.mnist || (train.rows == kSide && train.columns == kSide), DataError,
           "{}: {} has images of {} x {}, found {} x {}; take smnist/NAME for other sets", files.train_images.string(),
           set.name, kSide, kSide, train.rows, train.columns);
  int64_t classes = set.mnist ? kClasses : 1;
  for (const uint8_t label : train.labels)
    if (!set.mnist) classes = std::max<int64_t>(classes, label + 1);
  const auto compare = [&](const LabelledImages& images, const Path& path) {
    for (size_t i = 0; i < images.labels.size(); ++i)
      XF_CHECK(images.labels[i] < classes, DataError, "{}: image {} is of class {}, and there are {}{}", path.string(),
               i, images.labels[i], classes, set.mnist ? "" : " in train");
  };
  compare(train, files.train_labels), compare(test, files.test_labels);
  XF_CHECK(classes >= 2, DataError, "{}: expected images of two classes or more", files.train_labels.string());
  info.shape = packed_shape(train.rows, classes);
  info.origin = "files";
  const auto put = [&](Split split, const LabelledImages& images, size_t i) {
    const auto pixels = static_cast<size_t>(images.rows * images.columns);
    add(split, {{std::span(images.pixels).subspan(i * pixels, pixels)}, {}, images.labels[i]});
  };
  const auto count = static_cast<int64_t>(train.labels.size());
  const std::vector<int64_t> order = seeded_order(count, static_cast<uint64_t>(options.split_seed), "smnist/split");
  for (int64_t i = 0; i < count; ++i)
    put(i < count / kDevShare ? Split::kDev : Split::kTrain, train, static_cast<size_t>(order[static_cast<size_t>(i)]));
  for (size_t i = 0; i < test.labels.size(); ++i) put(Split::kTest, test, i);
  for (int64_t label = 0; label < classes; ++label) info.details["classes"].push_back(std::to_string(label));
  info.details["files"] = file_facts(files.paths());
}

std::unique_ptr<DataSource> open(const Set& set, const Json& given, const DataLocation& location,
                                 const ProgressCallback& progress) {
  const Options options = read_options(set, given);
  require_folder(set.name, "a folder with train-images-idx3-ubyte, train-labels-idx1-ubyte and the same of t10k",
                 location);
  const IdxFiles files = find_idx_files(location.folder);
  // The order is no part of the key: pixels are put in it when they are read.
  const Json key{{"adapter", kAdapterVersion},
                 {"mnist", set.mnist},
                 {"split_seed", options.split_seed},
                 {"files", file_identity(files.paths())}};
  const auto build = [&](const AddExample& add, DataInfo& info) { pack(set, files, options, add, info, progress); };
  return pixel_numbers(open_cached({location.cache, "smnist", key}, build, progress), {.order = options.permutation});
}

CheckReport check(const Set& set, const Json& given, const DataLocation& location, const ProgressCallback& progress) {
  const auto source = open(set, given, location, progress);
  CheckReport report;
  if (set.mnist) compare_sizes(*source, {54'000, 6'000, 10'000}, report);
  check_duplicates(*source, report);
  describe_splits(*source, report);
  return report;
}

// Row by row, whatever order the places have.
std::vector<uint8_t> bytes_of(const Example& example, const DataInfo& info) {
  return pixel_bytes(example, {.order = info.details.value("permutation", "none")});
}

DatasetDescriptor descriptor(const Set& set) {
  DatasetDescriptor result;
  result.name = set.name;
  result.title = set.title;
  result.paper = set.mnist
                     ? "LeCun et al. 1998; as in Le, Jaitly, Hinton, A Simple Way to Initialize Recurrent Networks "
                       "of Rectified Linear Units, 2015"
                     : "this project's own";
  result.source = set.mnist ? "train-images-idx3-ubyte.gz and three more, http://yann.lecun.com/exdb/mnist"
                            : "images and labels in IDX files, as Fashion-MNIST, KMNIST and EMNIST come";
  result.options = options_of(set);
  result.shape_is_likely = !set.mnist;
  result.shape = [set](const Json& given) { return shape_of(read_options(set, given)); };
  result.open = [set](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
    return open(set, options, location, progress);
  };
  result.check = [set](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
    return check(set, options, location, progress);
  };
  result.show = [](const Example& example, const DataInfo& info) {
    return fmt::format("{}label {}", drawn_in_letters(bytes_of(example, info)),
                       info.details["classes"][static_cast<size_t>(example.label)].get<std::string>());
  };
  result.picture = [](const Example& example, const DataInfo& info) { return grey_image(bytes_of(example, info)); };
  return result;
}

Set any_set(const std::string& name) { return {"smnist/" + name, "images in IDX files, pixel by pixel", false}; }

}  // namespace

std::vector<DatasetDescriptor> describe() {
  DatasetDescriptor sequential = descriptor({"smnist", "sequential MNIST: a digit, pixel by pixel", true});
  sequential.aliases = {"sequential-mnist"};
  DatasetDescriptor permuted =
      descriptor({"psmnist", "permuted MNIST: a digit's pixels in one fixed order", true, "bitreverse"});
  permuted.aliases = {"permuted-mnist", "pmnist"};
  DatasetDescriptor any = descriptor(any_set("<name>"));
  any.member = [](const std::string& name) { return descriptor(any_set(name)); };
  return {sequential, permuted, any};
}

}  // namespace xformer::data::adapters::smnist
