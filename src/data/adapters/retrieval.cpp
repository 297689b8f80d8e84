// Retrieval (Long Range Arena "Retrieval", lra-recipe 3.3): whether one of two papers of the ACL Anthology Network
// cites the other, from the bytes of both; byte b is id b + 1, each document cut to N_max bytes.
//
// aan-synth is no such data but a stand-in that is generated: pairs of documents that share rare words, or do not. With
// new words for every pair a model has to compare, with a few subjects in all it may learn to recognise them.
#include <algorithm>

#include "core/error.h"
#include "core/plain_files.h"
#include "data/cache/cache.h"
#include "data/cache/packed_files.h"
#include "data/check.h"
#include "data/generated_source.h"
#include "data/text/byte_text.h"
#include "data/what_is_there.h"
#include "readers/aan.h"

namespace xformer::data::adapters::retrieval {
namespace {

constexpr int64_t kAdapterVersion = 1;  // part of the cache's key: raise it when the content made here changes
constexpr std::array<int64_t, 3> kPublished{147'086, 18'090, 17'437};  // pairs by split

struct Options {
  int64_t length = 4000;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>().add(&Options::length, "length", "bytes that each document is cut to (N_max)", between(1, 1e6));
  return kSchema;
}

Options read_options(const Json& options) { return schema().read(options); }

std::array<Path, 3> find_files(const Path& folder, bool require_all_splits) {
  std::array<Path, 3> result;
  for (const Split split : kAllSplits) {
    const std::string part = split == Split::kDev ? "eval" : split_name(split);
    Path& place = result[static_cast<size_t>(split)];
    for (const Path& release : release_folders(folder))
      for (const Path& below : {release, release / "tsv_data"})
        for (const char* ending : {".tsv", ".tsv.gz"})
          if (const Path file = below / ("new_aan_pairs." + part + ending);
              place.empty() && std::filesystem::exists(file))
            place = file;
    XF_CHECK(!place.empty() || !require_all_splits, DataError,
             "no {} split in {}: expected new_aan_pairs.{}.tsv (or .tsv.gz); {}", split_name(split), folder.string(),
             part, what_is_there(folder));
  }
  const bool any = std::any_of(result.begin(), result.end(), [](const Path& path) { return !path.empty(); });
  XF_CHECK(any, DataError, "no new_aan_pairs.{{train,eval,test}}.tsv in {}; {}", folder.string(),
           what_is_there(folder));
  return result;
}

void pack(const std::array<Path, 3>& files, const Options& options, const AddExample& add, DataInfo& info,
          const ProgressCallback& progress) {
  info.shape = byte_text_shape(options.length, 2);
  info.origin = "files";
  uint64_t total = 0, done = 0;
  for (const Path& file : files)
    if (!file.empty()) total += size_of_plain_file(file);
  for (const Split split : kAllSplits) {
    const Path& file = files[static_cast<size_t>(split)];
    if (file.empty()) continue;
    readers::aan::PairReader rows(file);
    for (readers::aan::Pair pair; rows.next(pair);) {
      const auto cut = [&](std::string_view text) {
        return bytes_of(text.substr(0, static_cast<size_t>(options.length)));
      };
      add(split, {{cut(pair.first), cut(pair.second)}, {}, pair.label});
      if (progress && rows.line_number() % 64 == 0) progress("packing document pairs", done + rows.bytes_read(), total);
    }
    done += rows.bytes_read();
    info.details["files"][split_name(split)] = file_facts({file}).front();
  }
}

std::unique_ptr<DataSource> open(const Json& given, const DataLocation& location, const ProgressCallback& progress) {
  const Options options = read_options(given);
  require_folder("retrieval", "new_aan_pairs.train.tsv, .eval.tsv and .test.tsv", location);
  XF_CHECK(std::filesystem::is_directory(location.folder), DataError, "--data: expected a folder, found the file {}",
           location.folder.string());
  const std::array<Path, 3> files = find_or_offer(
      location.folder, [&](const Path& folder) { return find_files(folder, location.require_all_splits); });
  std::vector<Path> present;
  for (const Path& file : files)
    if (!file.empty()) present.push_back(file);
  const Json key{{"adapter", kAdapterVersion}, {"length", options.length}, {"files", file_identity(present)}};
  const auto build = [&](const AddExample& add, DataInfo& info) { pack(files, options, add, info, progress); };
  return open_cached({location.cache, "retrieval", key}, build, progress);
}

CheckReport check(const Json& given, const DataLocation& location, const ProgressCallback& progress) {
  const auto source = open(given, location, progress);
  CheckReport report;
  compare_sizes(*source, kPublished, report);
  check_duplicates(*source, report);
  describe_splits(*source, report);
  return report;
}

std::string show(const Example& example, const DataInfo& info) {
  std::string text;
  for (const std::span<const uint8_t> bytes : example.ids)
    text += fmt::format("{}\n--- {} bytes\n",
                        text_of(bytes.first(std::min(bytes.size(), static_cast<size_t>(info.shape.max_len)))),
                        bytes.size());
  return text + fmt::format("label {}", example.label);
}

// --- aan-synth

struct SynthOptions : GeneratedSizes {
  int64_t length = 1000, shared_words = 8, subjects = 0;
};

const Schema<SynthOptions>& synth_schema() {
  static const Schema<SynthOptions> kSchema =
      sizes_schema<SynthOptions>()
          .add(&SynthOptions::length, "length", "bytes of each document (N_max)", between(64, 1e6))
          .add(&SynthOptions::shared_words, "shared_words",
               "rare words of a subject; the documents of a pair are about one subject or about two", between(1, 1000))
          .add(&SynthOptions::subjects, "subjects", "how many there are in all, from 2; 0: new ones for every pair",
               between(0, 1000));
  return kSchema;
}

SynthOptions read_synth(const Json& options) {
  const SynthOptions result = synth_schema().read(options);
  XF_CHECK(result.subjects != 1, UserError,
           "data.subjects: expected 2 at least, or 0 for new ones in every pair; got 1: no pair would differ");
  return result;
}

std::string word(Stream& numbers) {
  std::string result(3 + numbers.next_below(6), ' ');
  for (char& letter : result) letter = static_cast<char>('a' + numbers.next_below(26));
  return result;
}

std::vector<std::string> words_of_subject(Stream& numbers, int64_t count) {
  std::vector<std::string> result;
  for (int64_t i = 0; i < count; ++i) result.push_back(word(numbers));
  return result;
}

// Words of the subject among common ones, one in four.
void write_document(Stream& numbers, const std::vector<std::string>& subject, uint64_t seed, size_t length,
                    std::vector<uint8_t>& into) {
  into.clear();
  while (into.size() < length) {
    const bool rare = numbers.next_below(4) == 0;
    Stream common(derive_seed(seed, "common words"), numbers.next_below(500));
    const std::string next = rare ? subject[numbers.next_below(subject.size())] : word(common);
    into.insert(into.end(), next.begin(), next.end());
    into.push_back(' ');
  }
  into.resize(length);
}

std::unique_ptr<DataSource> open_synth(const Json& given, const DataLocation& location, const ProgressCallback&) {
  refuse_folder("aan-synth", location);
  const SynthOptions options = read_synth(given);
  const auto seed = static_cast<uint64_t>(options.generator_seed);
  GeneratedExamples examples{"aan-synth",
                             1,
                             synth_schema().write(options),
                             seed,
                             byte_text_shape(options.length, 2),
                             {options.train_examples, options.dev_examples, options.test_examples},
                             {}};
  examples.make = [options, seed](Stream& numbers, ExampleBuffers& into) {
    const auto label = static_cast<int64_t>(numbers.next_below(2));
    const auto all = static_cast<uint64_t>(options.subjects);
    std::vector<std::string> subject;
    uint64_t number = 0;  // of the subject, where there are `subjects` in all
    for (size_t i = 0; i < 2; ++i) {
      if (i == 0 || label == 0) {
        if (all > 0) {
          number = i == 0 ? numbers.next_below(all) : (number + 1 + numbers.next_below(all - 1)) % all;
          Stream words(derive_seed(seed, "subjects"), number);
          subject = words_of_subject(words, options.shared_words);
        } else {
          subject = words_of_subject(numbers, options.shared_words);
        }
      }
      write_document(numbers, subject, seed, static_cast<size_t>(options.length), into.ids[i]);
    }
    return Example{{into.ids[0], into.ids[1]}, {}, label};
  };
  return generated_source(std::move(examples));
}

CheckReport check_synth(const Json& given, const DataLocation& location, const ProgressCallback& progress) {
  const auto source = open_synth(given, location, progress);
  CheckReport report;
  check_duplicates(*source, report);
  describe_splits(*source, report);
  return report;
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  DatasetDescriptor retrieval;
  retrieval.name = "retrieval";
  retrieval.aliases = {"lra-retrieval", "aan"};
  retrieval.title = "Retrieval: does one paper cite the other, byte by byte";
  retrieval.paper = "Radev et al., The ACL Anthology Network corpus, 2013; as in Tay et al., Long Range Arena, 2021";
  retrieval.source =
      "new_aan_pairs.{train,eval,test}.tsv of https://storage.googleapis.com/long-range-arena/lra_release.gz";
  retrieval.default_family = "dual-encoder";
  retrieval.options = schema().options();
  retrieval.accepts_length = true;
  retrieval.shape = [](const Json& options) { return byte_text_shape(read_options(options).length, 2); };
  retrieval.open = open;
  retrieval.check = check;
  retrieval.show = show;

  DatasetDescriptor synth = retrieval;
  synth.name = "aan-synth";
  synth.aliases = {};
  synth.source = "generated";
  synth.generated = true;
  synth.title = "generated pairs of documents that share rare words, or do not: no LRA data";
  synth.paper = "this project's own";
  synth.options = synth_schema().options();
  synth.shape = [](const Json& options) { return byte_text_shape(read_synth(options).length, 2); };
  synth.open = open_synth;
  synth.check = check_synth;
  return {retrieval, synth};
}

}  // namespace xformer::data::adapters::retrieval
