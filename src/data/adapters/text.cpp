// Byte-level sentiment of film reviews (Long Range Arena "Text", lra-recipe 3.2): the bytes of an IMDb review (Maas et
// al. 2011), markup and case kept, byte b as id b + 1, the first N_max of them; the class is 0 (negative) or 1.
#include <map>

#include "core/error.h"
#include "data/cache/cache.h"
#include "data/cache/packed_files.h"
#include "data/check.h"
#include "data/duplicates.h"
#include "data/text/byte_text.h"
#include "data/text/imdb_files.h"

namespace xformer::data::adapters::text {
namespace {

constexpr int64_t kAdapterVersion = 1;  // part of the cache's key: raise it when the content made here changes
constexpr int64_t kLabelled = 25'000;   // reviews of train and of test, as published

struct Options {
  int64_t length = 4000;
  std::string dev = "test", characters = "bytes";
  int64_t split_seed = 0;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::length, "length", "bytes that a review is cut to (N_max)", between(1, 1e6))
          .add(&Options::dev, "dev",
               "dev examples: test (the test split itself, as the published numbers) or holdout (a tenth of the "
               "training reviews)",
               one_of({"test", "holdout"}))
          .add(&Options::characters, "characters",
               "what counts as a character: bytes, or repr: of the way Python prints a byte string (b'it\\'s ...'), as "
               "in Paramixer's code",
               one_of({"bytes", "repr"}))
          .add(&Options::split_seed, "split_seed", "seed of the holdout, apart from the run's seed", at_least(0));
  return kSchema;
}

Options read_options(const Json& options) { return schema().read(options); }

std::vector<Path> places_of(const ImdbFiles& files) {
  if (!files.archive.empty()) return {files.archive};
  return {files.folder / "train" / "neg", files.folder / "train" / "pos", files.folder / "test" / "neg",
          files.folder / "test" / "pos"};
}

DataShape shape_of(const Options& options, int64_t length) {
  return options.characters == "repr" ? python_repr_shape(length) : byte_text_shape(length, 1);
}

struct Review {
  std::string text;
  int64_t label;
};

void pack(const ImdbFiles& files, const Options& options, const AddExample& add, DataInfo& info,
          const ProgressCallback& progress) {
  std::array<std::vector<Review>, 3> reviews;
  int64_t longest = 0;
  read_imdb(
      files,
      [&](const ImdbReview& review) {
        std::string text = options.characters == "repr" ? python_repr(review.text) : std::string(review.text);
        longest = std::max(longest, static_cast<int64_t>(text.size()));
        reviews[static_cast<size_t>(review.split)].push_back({std::move(text), review.label});
      },
      progress);
  info.shape = shape_of(options, longest);
  info.origin = "files";
  info.details["files"] = file_facts(places_of(files));
  info.details["dev"] = options.dev;
  info.details["longest_bytes"] = longest;
  info.details["characters"] = options.characters;
  const auto put = [&](Split split, const Review& review) { add(split, {{bytes_of(review.text)}, {}, review.label}); };
  // Training reviews in a seeded order: the files' own sorts them by class.
  std::vector<Review>& train = reviews[static_cast<size_t>(Split::kTrain)];
  const std::vector<int64_t> order =
      seeded_order(static_cast<int64_t>(train.size()), static_cast<uint64_t>(options.split_seed), "text/split");
  const size_t held = options.dev == "holdout" ? train.size() / 10 : 0;
  DuplicateFinder duplicates({"train", "dev", "test"});
  const auto see = [&](Split split, int64_t place, const Review& review) {
    duplicates.see(split, place, bytes_of(review.text));
    put(split, review);
  };
  for (size_t i = 0; i < order.size(); ++i)
    see(i < held ? Split::kDev : Split::kTrain, order[i], train[static_cast<size_t>(order[i])]);
  const std::vector<Review>& test = reviews[static_cast<size_t>(Split::kTest)];
  for (size_t i = 0; i < test.size(); ++i) see(Split::kTest, static_cast<int64_t>(i), test[i]);
  if (options.dev == "test")
    for (const Review& review : test) put(Split::kDev, review);
  info.details.update(duplicates.report());
}

std::unique_ptr<DataSource> open(const Json& given, const DataLocation& location, const ProgressCallback& progress) {
  const Options options = read_options(given);
  require_folder("text", "the folder aclImdb, or aclImdb_v1.tar.gz", location);
  const ImdbFiles files = find_imdb_files(location.folder);
  const Json key{{"adapter", kAdapterVersion},
                 {"dev", options.dev},
                 {"characters", options.characters},
                 {"split_seed", options.split_seed},
                 {"files", file_identity(places_of(files))}};
  const auto build = [&](const AddExample& add, DataInfo& info) { pack(files, options, add, info, progress); };
  // One cache for all lengths.
  const auto cut = [&](DataShape& shape) { shape.max_len = options.length; };
  return open_cached({location.cache, "text", key, cut}, build, progress);
}

CheckReport check(const Json& given, const DataLocation& location, const ProgressCallback& progress) {
  const auto source = open(given, location, progress);
  const DataInfo& info = source->info();
  CheckReport report;
  std::vector<std::string> differences;
  for (const Split split : {Split::kTrain, Split::kTest}) {
    const int64_t held = split == Split::kTrain && info.details["dev"] == "holdout" ? source->size(Split::kDev) : 0;
    if (source->size(split) + held != kLabelled)
      differences.push_back(
          fmt::format("{} has {} reviews, published are {}", split_name(split), source->size(split) + held, kLabelled));
  }
  report.add("the sizes are the published ones", differences.empty() ? CheckOutcome::kPassed : CheckOutcome::kNote,
             differences.empty() ? fmt::format("{} and {}", kLabelled, kLabelled)
                                 : fmt::format("{}", fmt::join(differences, "; ")));
  check_duplicates(*source, report);
  describe_splits(*source, report);
  return report;
}

std::string show(const Example& example, const DataInfo& info) {
  const std::span<const uint8_t> bytes = example.ids[0];
  const size_t kept = std::min(bytes.size(), static_cast<size_t>(info.shape.max_len));
  const std::string text(text_of(bytes.first(kept)));
  return fmt::format("{}\n{} bytes{}, label {} ({})", info.details["characters"] == "repr" ? printed_repr(text) : text,
                     bytes.size(), kept < bytes.size() ? fmt::format(", cut to {}", kept) : "", example.label,
                     example.label == 1 ? "positive" : "negative");
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  DatasetDescriptor text;
  text.name = "text";
  text.aliases = {"lra-text", "imdb"};
  text.title = "Text: sentiment of film reviews, byte by byte";
  text.paper =
      "Maas et al., Learning Word Vectors for Sentiment Analysis, 2011; as in Tay et al., Long Range Arena, 2021";
  text.source = "aclImdb_v1.tar.gz from https://ai.stanford.edu/~amaas/data/sentiment/, as it is or unpacked";
  text.options = schema().options();
  text.accepts_length = true;
  text.shape = [](const Json& options) {
    const Options read = read_options(options);
    return shape_of(read, read.length);
  };
  text.open = open;
  text.check = check;
  text.show = show;
  return {text};
}

}  // namespace xformer::data::adapters::text
