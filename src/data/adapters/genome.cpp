// Classes of nucleic acids, letter by letter (tasks-more 4): Paramixer's `hfdna` (transcripts of man against fruit fly)
// and `mtcdna` (cDNA of mice against turtles), BigBird's `promoter` (fragments around a transcription start against
// made ones), and `genome/<name>`, any FASTA files or table.
//
// A, G, C and T are ids 1 to 4, whatever stands for several of them 5; 0 is padding. A sequence is cut to its first
// data.length letters.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "data/cache/cache.h"
#include "data/cache/packed_files.h"
#include "data/check.h"
#include "data/class_splits.h"
#include "data/genome/genome_files.h"
#include "data/genome/made_fragments.h"

namespace xformer::data::adapters::genome {
namespace {

constexpr int64_t kAdapterVersion = 1;  // part of the cache's key: raise it when the content made here changes
constexpr uint64_t kMostLetters = 8'000'000'000;                // of all examples, which are held until they are split
constexpr std::string_view kIds = "AGCT";                       // id 1 and on
constexpr std::array<const char*, 2> kClasses{"made", "true"};  // of promoters

struct Options {
  int64_t length = 16384, min_length = 1, split_seed = 0;
  std::string ambiguous = "n", classes, made = "files";
  [[nodiscard]] bool makes() const { return made == "substituted"; }
  double dev_share = 0.2, test_share = 0.2;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::length, "length", "letters that a sequence is cut to, its first (N)", between(1, 1e6))
          .add(&Options::min_length, "min_length", "shorter sequences are left out", at_least(1))
          .add(&Options::ambiguous, "ambiguous",
               "letters that stand for several, N and ten more: n (all of them are one id) or drop (the sequence is "
               "left out)",
               one_of({"n", "drop"}))
          .add(&Options::classes, "classes",
               "FASTA files of each class by their names, NAME=PATTERN[|PATTERN],...; empty: a file is a class")
          .add(&Options::dev_share, "dev_share", "part of every class that is dev where the files do not say",
               fraction_below_one())
          .add(&Options::test_share, "test_share", "part of every class that is test where the files do not say",
               fraction_below_one())
          .add(&Options::split_seed, "split_seed", "seed of these parts, apart from the run's seed", at_least(0));
  return kSchema;
}

const Schema<Options>& promoter_schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .include(schema())
          .add(&Options::made, "made",
               "fragments that are no promoters: files (they are there), or substituted (made of every promoter by "
               "random letters in 12 of its 20 parts, in the split of that; the files hold promoters alone)",
               one_of({"files", "substituted"}))
          .added("files");
  return kSchema;
}

// One of the sets; what it says of options is their default there.
struct Known {
  std::string name, title, paper, source, headline;
  Json defaults = Json::object();
  bool two_classes = true, promoters = false;
  [[nodiscard]] const Schema<Options>& schema() const { return promoters ? promoter_schema() : genome::schema(); }
};

std::vector<OptionInfo> options_of(const Known& known) {
  std::vector<OptionInfo> result = known.schema().options();
  for (OptionInfo& option : result)
    if (known.defaults.contains(option.name)) option.fallback = known.defaults[option.name];
  return result;
}

Options read_options(const Known& known, const Json& given) {
  Json all = known.defaults;
  all.update(given);
  const Options options = known.schema().read(all);
  check_shares(options.dev_share, options.test_share);
  return options;
}

DataShape shape_of(const Known& known, const Options& options, int64_t classes) {
  DataShape shape;
  shape.max_len = options.length;
  shape.vocabulary = 1 + static_cast<int64_t>(kIds.size()) + (options.ambiguous == "n" ? 1 : 0);
  shape.id_offset = 1;
  shape.target = class_target(classes);
  if (!known.headline.empty() && classes == 2) shape.target.parameters["headline"] = known.headline;
  return shape;
}

struct Kept {
  std::string letters, class_name, where;
  std::optional<Split> split;
};

struct Content {
  std::vector<Kept> kept;
  std::array<int64_t, readers::kNucleotides.size()> counts{};
  int64_t records = 0, shorter = 0, cut = 0, with_ambiguous = 0;
};

Content read(const GenomeFiles& files, const Options& options, const ProgressCallback& progress) {
  Content content;
  uint64_t letters = 0;
  const auto add = [&](const GenomeRecord& record) {
    const readers::Nucleotides& sequence = *record.sequence;
    ++content.records;
    for (size_t i = 0; i < sequence.counts.size(); ++i) content.counts[i] += sequence.counts[i];
    if (sequence.length < options.min_length) {
      ++content.shorter;
      return;
    }
    const bool ambiguous = sequence.ambiguous() > 0;
    content.with_ambiguous += ambiguous ? 1 : 0;
    if (ambiguous && options.ambiguous == "drop") return;
    content.cut += sequence.length > options.length ? 1 : 0;
    letters += sequence.letters.size();
    XF_CHECK(letters <= kMostLetters, DataError, "{}: more than {} in sequences; a smaller data.length keeps less",
             record.where, format_bytes(kMostLetters));
    content.kept.push_back({sequence.letters, record.class_name, record.where, record.split});
  };
  read_genome(files, static_cast<size_t>(options.length), add, progress);
  return content;
}

// Behind each promoter the fragment that is made of it.
void add_made(Content& content, uint64_t seed) {
  std::vector<Kept> all;
  for (Kept& one : content.kept) {
    Kept made{made_fragment(one.letters, seed, all.size() / 2), kClasses[0], one.where, one.split};
    one.class_name = kClasses[1];
    all.push_back(std::move(one));
    all.push_back(std::move(made));
  }
  content.kept = std::move(all);
}

// By label: of the files, or of a table's rows that may be trained on, numbers in their order.
std::vector<std::string> classes_of(const GenomeFiles& files, const Content& content) {
  if (!files.tables) return files.classes;
  std::set<std::string> names;
  for (const Kept& one : content.kept)
    if (!one.split || *one.split == Split::kTrain) names.insert(one.class_name);
  std::vector<std::string> result(names.begin(), names.end());
  const auto whole = [](const std::string& name) {
    return name.size() < 10 && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  if (std::all_of(result.begin(), result.end(), whole))
    std::sort(result.begin(), result.end(),
              [](const std::string& left, const std::string& right) { return std::stoi(left) < std::stoi(right); });
  return result;
}

std::vector<int64_t> labels_of(const std::vector<std::string>& classes, const Content& content, const Path& place) {
  std::vector<int64_t> labels, counts(classes.size(), 0);
  for (const Kept& one : content.kept) {
    const auto found = std::find(classes.begin(), classes.end(), one.class_name);
    XF_CHECK(found != classes.end(), DataError, "{}: the class {} is none of those of train ({})", one.where,
             xformer::quoted(one.class_name), fmt::join(classes, ", "));
    labels.push_back(found - classes.begin());
    ++counts[static_cast<size_t>(labels.back())];
  }
  for (size_t i = 0; i < counts.size(); ++i)
    XF_CHECK(counts[i] > 0, DataError,
             "{}: no sequence of the class {} is left: {} of {} are shorter than data.min_length, {} have letters that "
             "stand for several (data.ambiguous)",
             place.string(), classes[i], content.shorter, content.records, content.with_ambiguous);
  XF_CHECK(classes.size() >= 2, DataError, "{}: expected sequences of two classes or more, found {}", place.string(),
           classes.empty() ? "none" : "those of " + classes.front() + " alone");
  return labels;
}

void pack(const Known& known, const GenomeFiles& files, const Path& place, const Options& options,
          const AddExample& add, DataInfo& info, const ProgressCallback& progress) {
  Content content = read(files, options, progress);
  if (options.makes()) add_made(content, derive_seed(static_cast<uint64_t>(options.split_seed), "made"));
  const std::vector<std::string> classes =
      options.makes() ? std::vector<std::string>(kClasses.begin(), kClasses.end()) : classes_of(files, content);
  const std::vector<int64_t> labels = labels_of(classes, content, place);
  XF_CHECK(!known.two_classes || classes.size() == 2, DataError, "{}: {} has two classes, found {}: {}", place.string(),
           known.name, classes.size(), fmt::join(classes, ", "));
  std::vector<std::optional<Split>> made;
  for (const Kept& one : content.kept) made.push_back(one.split);
  const bool drawn = std::none_of(made.begin(), made.end(), [](const auto& split) { return split.has_value(); });
  std::vector<Split> splits =
      class_splits(labels, made, options.dev_share, options.test_share, static_cast<uint64_t>(options.split_seed));
  // A promoter and what is made of it share letters: no split has one without the other.
  for (size_t i = 0; options.makes() && i < splits.size(); i += 2) splits[i + 1] = splits[i];
  info.shape = shape_of(known, options, static_cast<int64_t>(classes.size()));
  info.origin = "files";
  info.details = {{"files", file_facts(files.paths())},
                  {"classes", classes},
                  {"split", drawn ? "own" : "files"},
                  {"sequences", content.records},
                  {"shorter", content.shorter},
                  {"cut", content.cut},
                  {"with_ambiguous_letters", content.with_ambiguous},
                  {"letters", Json::object()}};
  if (options.makes()) info.details["made"] = content.kept.size() / 2;
  for (size_t i = 0; i < content.counts.size(); ++i)
    if (content.counts[i] > 0) info.details["letters"][std::string(1, readers::kNucleotides[i])] = content.counts[i];
  std::vector<uint8_t> ids;
  for (size_t i = 0; i < content.kept.size(); ++i) {
    ids.clear();
    for (const char letter : content.kept[i].letters)
      ids.push_back(static_cast<uint8_t>(std::min(kIds.find(letter), kIds.size())));
    add(splits[i], Example{{ids}, {}, labels[i]});
  }
}

std::unique_ptr<DataSource> open(const Known& known, const Json& given, const DataLocation& location,
                                 const ProgressCallback& progress) {
  const Options options = read_options(known, given);
  require_folder(known.name, "a folder with a FASTA file for each class, or a table of sequence and class", location);
  const GenomeFiles files = options.makes()
                                ? find_promoter_files(known.name, location.folder)
                                : find_genome_files(known.name, location.folder, parse_class_patterns(options.classes));
  Json key = known.schema().write(options);
  key.update({{"adapter", kAdapterVersion}, {"task", known.name}, {"files", file_identity(files.paths())}});
  const auto build = [&](const AddExample& add, DataInfo& info) {
    pack(known, files, location.folder, options, add, info, progress);
  };
  return open_cached({location.cache, "genome", key}, build, progress);
}

CheckReport check(const Known& known, const Json& given, const DataLocation& location,
                  const ProgressCallback& progress) {
  const auto source = open(known, given, location, progress);
  const Json& details = source->info().details;
  CheckReport report;
  std::vector<std::string> letters;
  int64_t all = 0, several = 0;
  for (const auto& [letter, count] : details["letters"].items()) {
    letters.push_back(fmt::format("{} {}", letter, format_count(count.get<uint64_t>())));
    all += count.get<int64_t>();
    if (kIds.find(letter) == kIds.npos) several += count.get<int64_t>();
  }
  report.add("every letter is one of nucleic acids", CheckOutcome::kPassed,
             fmt::format("{} letters in {} sequences: {}", format_count(static_cast<uint64_t>(all)),
                         format_count(details["sequences"].get<uint64_t>()), fmt::join(letters, ", ")));
  if (details.contains("made"))
    report.add(
        "every sequence is of the files", CheckOutcome::kNote,
        fmt::format("fragments made of promoters, one of each: {}", format_count(details["made"].get<uint64_t>())));
  if (several > 0)
    report.add("every letter is one base", CheckOutcome::kNote,
               fmt::format("letters that stand for several bases: {} in {} sequences, which {}",
                           format_count(static_cast<uint64_t>(several)),
                           format_count(details["with_ambiguous_letters"].get<uint64_t>()),
                           source->info().shape.vocabulary > 5 ? "read them all as one id" : "are left out"));
  if (details["shorter"].get<int64_t>() > 0)
    report.add("every sequence is long enough", CheckOutcome::kNote,
               fmt::format("sequences shorter than data.min_length, which are left out: {}",
                           format_count(details["shorter"].get<uint64_t>())));
  if (details["cut"].get<int64_t>() > 0)
    report.add("every sequence is read whole", CheckOutcome::kNote,
               fmt::format("sequences longer than data.length, of which the first {} letters are read: {}",
                           source->info().shape.max_len, format_count(details["cut"].get<uint64_t>())));
  check_drawn_splits(*source, report);
  return report;
}

std::string show(const Example& example, const DataInfo& info) {
  std::string text;
  for (const uint8_t id : example.ids[0].as<uint8_t>()) text += id < kIds.size() ? kIds[id] : 'N';
  return fmt::format("{}\n{} letters, label {} ({})", text, text.size(), example.label,
                     info.details["classes"][static_cast<size_t>(example.label)].get<std::string>());
}

DatasetDescriptor descriptor(const Known& known) {
  DatasetDescriptor result;
  result.name = known.name;
  result.title = known.title;
  result.paper = known.paper;
  result.source = known.source;
  result.options = options_of(known);
  result.accepts_length = true;
  result.shape_is_likely = !known.two_classes;
  result.shape = [known](const Json& given) { return shape_of(known, read_options(known, given), 2); };
  result.check_options = [known](const Json& given) {
    static_cast<void>(parse_class_patterns(read_options(known, given).classes));
  };
  result.open = [known](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
    return open(known, options, location, progress);
  };
  result.check = [known](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
    return check(known, options, location, progress);
  };
  result.show = show;
  return result;
}

Known any_set(const std::string& name) {
  return {"genome/" + name,
          "nucleic acids in classes: any FASTA files or table",
          "this project's own",
          "any FASTA files, one for each class, or a table of sequence and class",
          "",
          Json::object(),
          false};
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  constexpr const char* kParamixer =
      "Yu et al., Paramixer: Parameterizing Mixing Links in Sparse Factors Works Better than Dot-Product "
      "Self-Attention, 2022";
  std::vector<DatasetDescriptor> result{
      descriptor({"hfdna",
                  "HFDNA: long transcripts of man or of fruit fly",
                  kParamixer,
                  "NONCODEv6_human.fa.gz and NONCODEv6_fruitfly.fa.gz from http://www.noncode.org/download.php",
                  "auc",
                  {{"min_length", 5001}, {"ambiguous", "drop"}, {"classes", "fruit-fly=*fruitfly*,human=*human*"}}}),
      descriptor({"mtcdna",
                  "MTcDNA: long cDNA of mice or of turtles",
                  kParamixer,
                  "cDNA of Chelonoidis abingdonii, Gopherus agassizii, Mus musculus and Mus spretus from "
                  "https://www.ensembl.org/info/data/ftp/index.html",
                  "auc",
                  {{"min_length", 5001}, {"classes", "turtle=Chelonoidis*|Gopherus*|*turtle*,mouse=Mus_*|*mouse*"}}}),
      descriptor(
          {"promoter",
           "promoter regions: around a transcription start, or made",
           "Zaheer et al., Big Bird: Transformers for Longer Sequences, 2020",
           "fragments of EPDnew (https://epd.expasy.org) and made ones, a FASTA file each, or a table; data.made makes "
           "them",
           "f1",
           {{"length", 8000}, {"classes", "made=*neg*|*non*|*made*,true=*pos*|*promoter*|*true*"}},
           /*two_classes=*/true,
           /*promoters=*/true})};
  DatasetDescriptor any = descriptor(any_set("<name>"));
  any.member = [](const std::string& name) { return descriptor(any_set(name)); };
  result.push_back(any);
  return result;
}

}  // namespace xformer::data::adapters::genome
