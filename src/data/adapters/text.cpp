// Byte-level sentiment of film reviews (Long Range Arena "Text", lra-recipe 3.2): the bytes of an IMDb review (Maas et
// al. 2011), markup and case kept, byte b as id b + 1, the first N_max of them; the class is 0 (negative) or 1.
#include <map>

#include "core/error.h"
#include "core/hash.h"
#include "data/cache/cache.h"
#include "data/cache/packed_files.h"
#include "data/check.h"
#include "data/duplicates.h"
#include "data/manifests.h"
#include "data/text/byte_text.h"
#include "data/text/imdb_files.h"

namespace xformer::data::adapters::text {
namespace {

constexpr int64_t kAdapterVersion = 2;  // part of the cache's key: raise it when the content made here changes
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
  std::string file;  // "test/neg/12_3.txt"
};

// What the reviews are, apart from how they are split and cut: the manifest has it of the genuine ones.
class Content {
 public:
  void add(const ImdbReview& review, const std::string& file) {
    hash_.update(fmt::format("{} {}\n", file, review.text.size()));
    hash_.update(review.text);
    // The publisher left out reviews of five and six stars.
    const bool fits = review.label == 1 ? review.rating > 6 : review.rating < 5;
    if (!fits && contradictions_++ == 0) first_ = file;
  }
  void put(Json& details) {
    details["content_sha256"] = hash_.hex();
    if (contradictions_ > 0)
      details["ratings_unlike_the_class"] = fmt::format("{}; the first: {}", contradictions_, first_);
  }

 private:
  Sha256 hash_;
  int64_t contradictions_ = 0;
  std::string first_;
};

void pack(const ImdbFiles& files, const Options& options, const AddExample& add, DataInfo& info,
          const ProgressCallback& progress) {
  std::array<std::vector<Review>, 3> reviews;
  int64_t longest = 0;
  Content content;
  read_imdb(
      files,
      [&](const ImdbReview& review) {
        std::string text = options.characters == "repr" ? python_repr(review.text) : std::string(review.text);
        longest = std::max(longest, static_cast<int64_t>(text.size()));
        std::string file = fmt::format("{}/{}/{}_{}.txt", split_name(review.split), review.label == 1 ? "pos" : "neg",
                                       review.id, review.rating);
        content.add(review, file);
        reviews[static_cast<size_t>(review.split)].push_back({std::move(text), review.label, std::move(file)});
      },
      progress);
  info.shape = shape_of(options, longest);
  info.origin = "files";
  info.details["files"] = file_facts(places_of(files));
  info.details["classes"] = {"negative", "positive"};
  info.details["dev"] = options.dev;
  info.details["longest_bytes"] = longest;
  info.details["characters"] = options.characters;
  content.put(info.details);
  const auto put = [&](Split split, const Review& review) {
    Example example{{bytes_of(review.text)}, {}, review.label};
    example.name = review.file;
    add(split, example);
  };
  // Training reviews in a seeded order: the files' own sorts them by class.
  std::vector<Review>& train = reviews[static_cast<size_t>(Split::kTrain)];
  const std::vector<int64_t> order =
      seeded_order(static_cast<int64_t>(train.size()), static_cast<uint64_t>(options.split_seed), "text/split");
  const size_t held = options.dev == "holdout" ? train.size() / 10 : 0;
  DuplicateFinder duplicates({"train", "dev", "test"});
  const auto see = [&](Split split, int64_t place, const Review& review) {
    duplicates.see(split, place, bytes_of(review.text), static_cast<double>(review.label));
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
  report.add(kPublishedCounts, differences.empty() ? CheckOutcome::kPassed : CheckOutcome::kNote,
             differences.empty() ? fmt::format("{} and {}", kLabelled, kLabelled)
                                 : fmt::format("{}", fmt::join(differences, "; ")));
  const Json& known = manifest_of("text").at("content");
  const bool genuine = info.details["content_sha256"] == known.at("sha256");
  report.add(
      "every review is the published one", genuine ? CheckOutcome::kPassed : CheckOutcome::kNote,
      genuine ? known.at("what").get<std::string>()
              : fmt::format("the reviews are not the published ones (content sha256 {}, expected {})",
                            info.details["content_sha256"].get<std::string>(), known.at("sha256").get<std::string>()));
  if (const Json odd = info.details.value("ratings_unlike_the_class", Json()); odd.is_string())
    report.add("every rating fits its class", CheckOutcome::kNote,
               fmt::format("reviews whose stars (in the file's name) are not those of their class, 1 to 4 of neg and 7 "
                           "to 10 of pos: {}",
                           odd.get<std::string>()));
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
