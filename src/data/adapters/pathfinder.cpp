// Pathfinder (Long Range Arena "Pathfinder" and "Path-X", lra-recipe 3.5 and 11): whether two discs are the ends of one
// dashed curve, from the pixels of a grey image, row by row, each level its own id.
//
//   pathfinder32        the official task: curves of 14 paddles     path-x  the same at 128 x 128
//   pathfinder32-inter  curves of 9 (Combiner's)                    pathfinder32-mixed  of 6, 9 and 14 (Paramixer's)
//   pathfinder32-easy   curves of 6 (the Arena's easy set)
#include <algorithm>

#include "core/error.h"
#include "data/cache/cache.h"
#include "data/cache/packed_files.h"
#include "data/cache/parallel_packing.h"
#include "data/check.h"
#include "data/generated_source.h"
#include "data/images/grey_images.h"
#include "data/pathfinder/pathfinder_files.h"
#include "data/pathfinder/pathfinder_generator.h"

namespace xformer::data::adapters::pathfinder {
namespace {

constexpr int64_t kAdapterVersion = 1;  // part of the cache's key: raise it when what is made of files changes
constexpr int64_t kDrawingVersion = 2;  // and this one when other images are drawn
constexpr int64_t kMostContour = 14;    // longer curves seldom find room
constexpr int64_t kFilesOfASplit = 10;  // metadata files of test and of dev under split=files

struct Task {
  std::string name;
  std::vector<std::string> aliases;
  std::string title;
  int64_t side = 32;
  std::vector<int64_t> contours;  // paddles in a curve, by set
};

const std::vector<Task> kTasks{
    {"pathfinder32", {"lra-pathfinder", "pathfinder"}, "Pathfinder: are two discs the ends of one curve?", 32, {14}},
    {"pathfinder32-inter", {}, "Pathfinder with curves of nine paddles", 32, {9}},
    {"pathfinder32-easy", {}, "Pathfinder with curves of six paddles", 32, {6}},
    {"pathfinder32-mixed", {}, "Pathfinder with curves of six, nine and fourteen paddles", 32, {6, 9, 14}},
    {"path-x", {"pathfinder128", "lra-path-x"}, "Path-X: Pathfinder at 128 x 128 pixels", 128, {14}}};

std::string set_name(int64_t contour) {
  return contour == 6 ? "curv_baseline" : fmt::format("curv_contour_length_{}", contour);
}

struct Options : GeneratedSizes {
  Options() { train_examples = 160'000, dev_examples = 20'000, test_examples = 20'000; }
  int64_t contour_length = 0;
  bool mask_zero_pixels = true;
  std::string split = "seeded";
  int64_t split_seed = 0;
};

// What only drawn images are made by.
Schema<Options> drawing_schema() {
  return sizes_schema<Options>()
      .add(&Options::contour_length, "contour_length",
           "paddles in each of the two curves of a drawn image, fewer for an easier task; 0: the task's own",
           between(0, kMostContour))
      .added(0);
}

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      drawing_schema()
          .add(&Options::mask_zero_pixels, "mask_zero_pixels",
               "black pixels count as padding, as in both published code bases, whose mask is id > 0")
          .add(&Options::split, "split",
               "of files: seeded (a tenth each for dev and test) or files (the first ten metadata files of every set "
               "are test, the next ten dev)",
               one_of({"seeded", "files"}))
          .add(&Options::split_seed, "split_seed", "seed of the split, apart from the run's seed", at_least(0));
  return kSchema;
}

Options read_options(const Json& options) { return schema().read(options); }

DataShape shape_of(const Task& task, const Options& options) {
  DataShape shape;
  shape.max_len = task.side * task.side;
  shape.side = task.side;
  shape.vocabulary = 256;
  shape.zero_is_padding = options.mask_zero_pixels;
  shape.target = class_target(2);
  return shape;
}

std::unique_ptr<DataSource> open_generated(const Task& task, const Options& options, const DataLocation& location,
                                           const ProgressCallback& progress) {
  const std::vector<int64_t> contours =
      options.contour_length > 0 ? std::vector<int64_t>{options.contour_length} : task.contours;
  const Json settings{{"side", task.side},
                      {"contour_lengths", contours},
                      {"train_examples", options.train_examples},
                      {"dev_examples", options.dev_examples},
                      {"test_examples", options.test_examples},
                      {"generator_seed", options.generator_seed}};
  const Json key{{"adapter", kAdapterVersion}, {"drawing", kDrawingVersion}, {"generator", settings}};
  const auto build = [&](const AddExample& add, DataInfo& info) {
    info.origin = "generated";
    info.details = {{"generator", settings}};
    info.shape = shape_of(task, options);
    std::vector<PathfinderSettings> sets;
    for (const int64_t contour : contours) sets.push_back(pathfinder_settings(task.side, contour));
    const uint64_t seed = derive_seed(static_cast<uint64_t>(options.generator_seed), "pathfinder/" + task.name);
    const int64_t dev = options.train_examples, test = dev + options.dev_examples;
    const auto make = [&](int64_t index) -> std::optional<MadeExample> {
      Stream numbers(seed, static_cast<uint64_t>(index));
      PathfinderImage image = draw_pathfinder(sets[static_cast<size_t>(index) % sets.size()], numbers);
      const Split split = index < dev ? Split::kTrain : index < test ? Split::kDev : Split::kTest;
      return MadeExample{split, std::move(image.pixels), image.label};
    };
    add_in_order(test + options.test_examples, make, add, "drawing Pathfinder", progress);
  };
  const auto planned = [&](DataShape& shape) { shape = shape_of(task, options); };
  return open_cached({location.cache, task.name, key, planned}, build, progress);
}

// Metadata files by size and time; of the folders of images their times, which change with what is in them.
Json identity(const std::vector<PathfinderSet>& sets) {
  Json result = Json::array();
  for (const PathfinderSet& set : sets) {
    Json times = Json::array();
    for (const Path& metadata : set.metadata) {
      std::error_code ignored;
      const auto time = std::filesystem::last_write_time(set.folder / "imgs" / metadata.stem(), ignored);
      times.push_back(ignored ? int64_t{0} : static_cast<int64_t>(time.time_since_epoch().count()));
    }
    result.push_back({{"metadata", file_identity(set.metadata)}, {"images", times}});
  }
  return result;
}

// The entries in the order in which they are packed, each with its split.
std::vector<std::pair<Split, PathfinderEntry>> split_entries(const std::vector<PathfinderSet>& sets,
                                                             const Options& options, int64_t& empty) {
  std::vector<std::pair<Split, PathfinderEntry>> all;
  for (const PathfinderSet& set : sets) {
    XF_CHECK(options.split == "seeded" || static_cast<int64_t>(set.metadata.size()) > 2 * kFilesOfASplit, DataError,
             "data.split=files takes twenty metadata files of every set for test and dev; {} has {}",
             set.folder.string(), set.metadata.size());
    for (PathfinderEntry& entry : list_pathfinder_images(set, empty)) {
      const int64_t file = entry.metadata_file;
      const Split split = file < kFilesOfASplit       ? Split::kTest
                          : file < 2 * kFilesOfASplit ? Split::kDev
                                                      : Split::kTrain;
      all.emplace_back(options.split == "files" ? split : Split::kTrain, std::move(entry));
    }
  }
  if (options.split == "files") return all;
  const auto count = static_cast<int64_t>(all.size());
  const std::vector<int64_t> order = seeded_order(count, static_cast<uint64_t>(options.split_seed), "pathfinder/split");
  std::vector<std::pair<Split, PathfinderEntry>> shuffled;
  for (int64_t i = 0; i < count; ++i) {
    const Split split = i < count / 10 ? Split::kDev : i < 2 * (count / 10) ? Split::kTest : Split::kTrain;
    shuffled.emplace_back(split, std::move(all[static_cast<size_t>(order[static_cast<size_t>(i)])].second));
  }
  return shuffled;
}

std::unique_ptr<DataSource> open_files(const Task& task, const Options& options, const DataLocation& location,
                                       const ProgressCallback& progress) {
  std::vector<std::string> names;
  for (const int64_t contour : task.contours) names.push_back(set_name(contour));
  const std::vector<PathfinderSet> sets = find_pathfinder_sets(location.folder, task.side, names);
  const Json key{{"adapter", kAdapterVersion},
                 {"split", options.split},
                 {"split_seed", options.split_seed},
                 {"files", identity(sets)}};
  const auto build = [&](const AddExample& add, DataInfo& info) {
    info.origin = "files";
    info.shape = shape_of(task, options);
    int64_t empty = 0;
    const auto entries = split_entries(sets, options, empty);
    if (empty > 0)
      info.dropped.push_back({Split::kTrain, "the image's file is empty (counted over all splits)", empty});
    for (size_t i = 0; i < sets.size(); ++i)
      info.details["files"][names[i]] = file_facts({sets[i].folder / "metadata"}).front();
    const auto make = [&](int64_t index) -> std::optional<MadeExample> {
      const auto& [split, entry] = entries[static_cast<size_t>(index)];
      return MadeExample{split, read_pathfinder_image(entry.image, task.side), entry.label};
    };
    add_in_order(static_cast<int64_t>(entries.size()), make, add, "packing Pathfinder", progress);
  };
  const auto planned = [&](DataShape& shape) { shape = shape_of(task, options); };
  return open_cached({location.cache, task.name, key, planned}, build, progress);
}

std::unique_ptr<DataSource> open(const Task& task, const Json& given, const DataLocation& location,
                                 const ProgressCallback& progress) {
  const Options options = read_options(given);
  return location.folder.empty() ? open_generated(task, options, location, progress)
                                 : open_files(task, options, location, progress);
}

// Mean grey and the share of pixels that are not black: what tells one rendering from another.
void describe_pixels(const DataSource& source, CheckReport& report) {
  for (const Split split : kAllSplits) {
    double sum = 0, lit = 0, pixels = 0;
    for (int64_t i = 0; i < source.size(split); ++i) {
      const Example example = source.read(split, i);
      for (const uint8_t level : example.ids[0].as<uint8_t>()) {
        sum += level;
        lit += level > 0 ? 1 : 0;
        ++pixels;
      }
    }
    if (pixels > 0)
      report.splits[split_name(split)].update({{"mean_grey", sum / pixels}, {"share_not_black", lit / pixels}});
  }
}

CheckReport check(const Task& task, const Json& given, const DataLocation& location, const ProgressCallback& progress) {
  const auto source = open(task, given, location, progress);
  CheckReport report;
  const auto sets = static_cast<int64_t>(task.contours.size());
  if (source->info().origin == "files" && read_options(given).split == "seeded")
    compare_sizes(*source, {160'000 * sets, 20'000 * sets, 20'000 * sets}, report);
  for (const Dropped& dropped : source->info().dropped)
    report.add("every image has a picture", CheckOutcome::kNote,
               fmt::format("images left out: {} ({})", dropped.count, dropped.reason));
  check_duplicates(*source, report);
  describe_splits(*source, report);
  describe_pixels(*source, report);
  return report;
}

std::string show(const Example& example, const DataInfo&) {
  return fmt::format("{}label {} ({})", drawn_in_letters(example.ids[0]), example.label,
                     example.label == 1 ? "one curve" : "two curves");
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  std::vector<DatasetDescriptor> result;
  for (const Task& task : kTasks) {
    DatasetDescriptor descriptor;
    descriptor.name = task.name;
    descriptor.aliases = task.aliases;
    descriptor.title = task.title;
    descriptor.paper =
        "Linsley et al., Learning long-range spatial dependencies with horizontal gated recurrent units, 2018; as in "
        "Tay "
        "et al., Long Range Arena, 2021";
    descriptor.source = fmt::format(
        "generated; or pathfinder{} of https://storage.googleapis.com/long-range-arena/lra_release.gz", task.side);
    descriptor.options = schema().options();
    const Schema<Options> drawing = drawing_schema();
    for (const OptionInfo& option : drawing.options()) descriptor.generator_options.push_back(option.name);
    descriptor.generated = true;
    descriptor.masked_share = 0.5;
    descriptor.shape = [task](const Json& options) { return shape_of(task, read_options(options)); };
    descriptor.open = [task](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
      return open(task, options, location, progress);
    };
    descriptor.check = [task](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
      return check(task, options, location, progress);
    };
    descriptor.show = show;
    descriptor.picture = [](const Example& example, const DataInfo&) { return grey_image(example.ids[0]); };
    result.push_back(std::move(descriptor));
  }
  return result;
}

}  // namespace xformer::data::adapters::pathfinder
