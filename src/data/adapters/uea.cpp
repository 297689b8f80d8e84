// Time-series classification: any set of the UEA and UCR archives, `uea/<name>` (tasks-more 5). Every variable is
// standardised by the training cases; cases are cut or padded to one length.
//
// Settings of the ten sets of MrsFormer's Table 6 (Nguyen et al. 2022, supplement A.1) go with their names.
#include <array>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/hash.h"
#include "core/names.h"
#include "data/cache/cache.h"
#include "data/cache/packed_files.h"
#include "data/check.h"
#include "data/series/series.h"
#include "data/series/series_files.h"
#include "data/what_is_there.h"
#include "readers/archive.h"
#include "readers/time_series.h"

namespace xformer::data::adapters::uea {
namespace {

constexpr int64_t kAdapterVersion = 1;  // part of the cache's key: raise it when the content made here changes

// What is known of a set without its files.
struct Known {
  const char* name;
  int64_t train, test, variables, longest, classes;
};

constexpr std::array<Known, 10> kKnown{{
    {"EthanolConcentration", 261, 263, 3, 1751, 4},
    {"FaceDetection", 5890, 3524, 144, 62, 2},
    {"Handwriting", 150, 850, 3, 152, 26},
    {"Heartbeat", 204, 205, 61, 405, 2},
    {"JapaneseVowels", 270, 370, 12, 29, 9},
    {"PEMS-SF", 267, 173, 963, 144, 7},
    {"SelfRegulationSCP1", 268, 293, 6, 896, 2},
    {"SelfRegulationSCP2", 200, 180, 7, 1152, 2},
    {"SpokenArabicDigits", 6599, 2199, 13, 93, 10},
    {"UWaveGestureLibrary", 120, 320, 3, 315, 8},
}};

struct Options {
  std::string dev = "test", longest = "both";
  int64_t split_seed = static_cast<int64_t>(kSplitSeed);
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::dev, "dev",
               "dev cases: test (the test file itself, as the published numbers) or holdout (a fifth of every class of "
               "the training file)",
               one_of({"test", "holdout"}))
          .add(&Options::longest, "longest",
               "places of the model: those of the longest series of both files, or of the training file, where longer "
               "test series are cut",
               one_of({"both", "train"}))
          .add(&Options::split_seed, "split_seed", "seed of the holdout, apart from the run's seed", at_least(0));
  return kSchema;
}

Options read_options(const Json& options) { return schema().read(options); }

// An archive that was asked for and what was unpacked from it once; else the folder that was asked for.
struct Place {
  Path folder, archive;
};
Place place_of(const std::string& name, const DataLocation& location, const ProgressCallback& progress) {
  namespace fs = std::filesystem;
  Path archive;
  if (fs::is_regular_file(location.folder)) archive = location.folder;
  else if (fs::exists(location.folder / (name + ".zip"))) archive = location.folder / (name + ".zip");
  if (archive.empty()) return {location.folder, {}};
  const Path unpacked = location.cache / "uea-unpacked" / sha256(file_identity({archive}).dump()).substr(0, 16);
  if (!fs::exists(unpacked)) {
    std::error_code error;
    fs::create_directories(unpacked.parent_path(), error);
    XF_CHECK(!error, ResourceError, "cannot make the folder {}: {}", unpacked.parent_path().string(), error.message());
    const FileLock lock = FileLock::wait(unpacked.parent_path() / ".lock");
    if (!fs::exists(unpacked))
      readers::unpack(archive, unpacked, {}, progress, [](const std::string& path) {
        return path.ends_with(".ts") || path.ends_with(".arff") || path.ends_with(".gz");
      });
  }
  return {unpacked, archive};
}

// The folder in the cache means nothing to whoever gave an archive: what it holds is said instead.
SeriesFiles find_files(const std::string& name, const Place& place) {
  try {
    return find_series_files(place.folder, name, /*require_both=*/true);
  } catch (const DataError&) {
    if (place.archive.empty()) throw;
    std::vector<std::string> names;
    readers::for_each_entry(place.archive, {},
                            [&](const std::string& path, readers::EntryReader&) { names.push_back(path); });
    throw DataError(fmt::format("no files of {0} in {1}: expected {0}_TRAIN.ts and {0}_TEST.ts (or .arff); {2}", name,
                                place.archive.string(), found_names(std::move(names), "the archive holds no file")));
  }
}

struct Loaded {
  std::vector<Series> cases;
  std::vector<std::string> places;  // of the cases: file and line
  std::vector<std::string> labels;
  std::string file;
  Gaps gaps;
  int64_t subsampled = 0;
};

Loaded load(const Path& path, const ProgressCallback& progress) {
  Loaded result;
  readers::SeriesReader reader(path);
  result.labels = reader.header().class_labels;
  result.file = path.string();
  const uint64_t size = std::filesystem::file_size(path);
  for (readers::SeriesCase one; reader.next(one);) {
    Series& series = result.cases.emplace_back();
    result.places.push_back(reader.where());
    result.subsampled += align(one, reader.where(), series);
    const Gaps gaps = fill_gaps(series);
    result.gaps.filled += gaps.filled;
    result.gaps.empty += gaps.empty;
    if (progress) progress("reading " + path.filename().string(), reader.bytes_read(), size);
  }
  return result;
}

void pack(const SeriesFiles& files, const Options& options, const AddExample& add, DataInfo& info,
          const ProgressCallback& progress) {
  Loaded train = load(*files.train, progress), test = load(*files.test, progress);
  const std::vector<int64_t> places = match_labels(test.labels, train.labels, test.file);
  for (Series& one : test.cases) one.label = places[static_cast<size_t>(one.label)];
  XF_CHECK(train.cases.front().variables == test.cases.front().variables, DataError, "{} has {} variables, {} has {}",
           train.file, train.cases.front().variables, test.file, test.cases.front().variables);
  std::vector<int64_t> all(train.cases.size()), labels;
  std::iota(all.begin(), all.end(), int64_t{0});
  for (const Series& one : train.cases) labels.push_back(one.label);
  XF_CHECK(std::set<int64_t>(labels.begin(), labels.end()).size() > 1, DataError,
           "{}: all {} cases are of one class, expected two at least", train.file, labels.size());
  DevSplit split{all, {}};
  if (options.dev == "holdout") split = stratified_split(labels, kDevShare, static_cast<uint64_t>(options.split_seed));
  std::vector<Series> training;
  for (const int64_t place : split.training) training.push_back(train.cases[static_cast<size_t>(place)]);
  const SeriesStatistics statistics = series_statistics(training);
  const int64_t longest =
      model_length(train.cases, test.cases, options.longest == "both" ? SeriesLength::kBoth : SeriesLength::kTrain);

  info.origin = "files";
  info.shape.max_len = longest;
  info.shape.width = train.cases.front().variables;
  info.shape.target = class_target(static_cast<int64_t>(train.labels.size()));
  int64_t cut = 0;
  const auto put = [&](Split which, const Loaded& from, int64_t place) {
    Series one = from.cases[static_cast<size_t>(place)];
    standardise(one, statistics, from.places[static_cast<size_t>(place)]);
    cut += clip(one, longest) ? 1 : 0;
    add(which, {{}, one.values, one.label});
  };
  for (const int64_t place : split.training) put(Split::kTrain, train, place);
  for (const int64_t place : split.dev) put(Split::kDev, train, place);
  for (const Split which : {Split::kTest, Split::kDev})
    if (which == Split::kTest || options.dev == "test")
      for (size_t place = 0; place < test.cases.size(); ++place) put(which, test, static_cast<int64_t>(place));
  info.details = {{"files", file_facts({*files.train, *files.test})},
                  {"classes", train.labels},
                  {"dev", options.dev},
                  {"values_filled_in", train.gaps.filled + test.gaps.filled},
                  {"empty_variables", train.gaps.empty + test.gaps.empty},
                  {"subsampled_variables", train.subsampled + test.subsampled},
                  {"constant_variables", statistics.constant()},
                  {"cut_series", cut}};
}

std::unique_ptr<DataSource> open(const std::string& name, const Json& given, const DataLocation& location,
                                 const ProgressCallback& progress) {
  const Options options = read_options(given);
  require_folder("uea/" + name, fmt::format("{0}_TRAIN.ts and {0}_TEST.ts (or .arff, .gz, or a zip of them)", name),
                 location);
  const SeriesFiles files = find_files(name, place_of(name, location, progress));
  Json key = schema().write(options);
  key.update({{"adapter", kAdapterVersion}, {"files", file_identity({*files.train, *files.test})}});
  const auto build = [&](const AddExample& add, DataInfo& info) { pack(files, options, add, info, progress); };
  return open_cached({location.cache, "uea/" + canonical_name(name), key}, build, progress);
}

CheckReport check(const Known& known, const std::string& name, const Json& given, const DataLocation& location,
                  const ProgressCallback& progress) {
  const auto source = open(name, given, location, progress);
  const DataInfo& info = source->info();
  CheckReport report;
  if (known.train > 0) {
    const int64_t dev = info.details["dev"] == "test" ? known.test : source->size(Split::kDev);
    compare_sizes(*source, {known.train - (info.details["dev"] == "test" ? 0 : dev), dev, known.test}, report);
    const bool same = info.shape.width == known.variables && info.shape.max_len == known.longest &&
                      info.shape.target.classes() == known.classes;
    report.add(
        "variables, length and classes are the published ones", same ? CheckOutcome::kPassed : CheckOutcome::kNote,
        fmt::format("{} variables, {} steps, {} classes; published are {}, {} and {}", info.shape.width,
                    info.shape.max_len, info.shape.target.classes(), known.variables, known.longest, known.classes));
  }
  std::vector<std::string> classes;
  for (const Json& one : info.details["classes"]) classes.push_back(one.get<std::string>());
  report.add("the files agree on variables and classes", CheckOutcome::kPassed,
             fmt::format("{} variables, at most {} steps, {} classes: {}", info.shape.width, info.shape.max_len,
                         classes.size(), first_names(classes, 30)));
  const auto note = [&](const char* fact, const char* what) {
    if (const int64_t count = info.details[fact]; count > 0)
      report.add(fact, CheckOutcome::kNote, fmt::format("{}: {}", what, count));
  };
  note("values_filled_in", "missing values filled in from their neighbours");
  note("empty_variables", "variables of a case without any value");
  note("subsampled_variables", "variables of a case that were subsampled to the length of the others");
  note("constant_variables", "variables with one value throughout train, read as 0");
  note("cut_series", "test series cut to the longest of train");
  check_duplicates(*source, report);
  describe_splits(*source, report);
  return report;
}

std::string show(const Example& example, const DataInfo& info) {
  const int64_t width = info.shape.width, length = example_length(example, info.shape);
  std::string text;
  for (int64_t step = 0; step < std::min<int64_t>(length, 8); ++step) {
    for (int64_t i = 0; i < std::min<int64_t>(width, 8); ++i)
      text += fmt::format("{:9.4f}", example.values[static_cast<size_t>(step * width + i)]);
    text += width > 8 ? " ...\n" : "\n";
  }
  return fmt::format("{}{} steps of {} variables (standardised), label {} ({})", text, length, width, example.label,
                     info.details["classes"][static_cast<size_t>(example.label)].get<std::string>());
}

DatasetDescriptor descriptor(const Known& known, const std::string& name) {
  DatasetDescriptor uea;
  uea.name = "uea/" + name;
  uea.title = "time series of the UEA archive: " + name;
  uea.paper = "Bagnall et al., The UEA multivariate time series classification archive, 2018";
  uea.source = "https://www.timeseriesclassification.com: " + name + ".zip, as it is or unpacked";
  uea.shape_is_likely = known.train == 0;
  uea.options = schema().options();
  uea.shape = [known](const Json&) {
    DataShape shape;
    shape.max_len = known.longest;
    shape.width = known.variables;
    shape.target = class_target(known.classes);
    return shape;
  };
  uea.open = [name](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
    return open(name, options, location, progress);
  };
  uea.check = [known, name](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
    return check(known, name, options, location, progress);
  };
  uea.show = show;
  return uea;
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  std::vector<DatasetDescriptor> result;
  for (const Known& known : kKnown) result.push_back(descriptor(known, known.name));
  // Any other set: its files say what it is.
  constexpr Known kOther{"<name>", 0, 0, 3, 100, 2};
  DatasetDescriptor other = descriptor(kOther, "<name>");
  other.title = "time series: any other set of the UEA and UCR archives";
  other.member = [kOther](const std::string& name) { return descriptor(kOther, name); };
  result.push_back(other);
  return result;
}

}  // namespace xformer::data::adapters::uea
