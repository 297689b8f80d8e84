// Classes of long texts, character by character (tasks-more 3): `longdoc/arxiv`, Paramixer's four categories of He et
// al.'s papers, and `longdoc/<name>`, any texts in folders by class.
//
// Characters are Unicode's code points, counted in the order of their numbers from id 1, or bytes, byte b as id b + 1;
// line ends are left out. A text is cut to its first data.length characters (of train, if asked for, its last), and no
// more of a file is read.
#include <array>

#include "core/error.h"
#include "data/cache/cache.h"
#include "data/cache/packed_files.h"
#include "data/check.h"
#include "data/class_splits.h"
#include "data/text/document_files.h"

namespace xformer::data::adapters::longdoc {
namespace {

constexpr int64_t kAdapterVersion = 1;  // part of the cache's key: raise it when the content made here changes
constexpr const char* kArxivClasses = "cs.AI,cs.NE,math.AC,math.GR";
constexpr int64_t kArxivCharacters = 4288;  // of all its texts, as published
constexpr char32_t kCodePoints = 0x110000;

struct Options {
  int64_t length = 16384, split_seed = 0;
  std::string characters = "unicode", vocabulary = "all", train_part = "first", classes;
  double dev_share = 0.2, test_share = 0.1;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::length, "length", "characters that a text is cut to (N)", between(1, 1e6))
          .add(&Options::characters, "characters", "what counts as a character: unicode (code points) or bytes",
               one_of({"unicode", "bytes"}))
          .add(
              &Options::vocabulary, "vocabulary",
              "whose characters have an id of their own: all (of every split, as in Paramixer's code) or train (others "
              "share one)",
              one_of({"all", "train"}))
          .add(&Options::train_part, "train_part",
               "what a longer training text is cut to: its first characters or, as Paramixer's code has it, its last",
               one_of({"first", "last"}))
          .add(&Options::classes, "classes", "folders that are read, by label (a,b,c); empty: every one, by name")
          .add(&Options::dev_share, "dev_share", "part of every class that is dev where the files do not say",
               fraction_below_one())
          .add(&Options::test_share, "test_share", "part of every class that is test where the files do not say",
               fraction_below_one())
          .add(&Options::split_seed, "split_seed", "seed of these parts, apart from the run's seed", at_least(0));
  return kSchema;
}

Options read_options(bool arxiv, const Json& given) {
  Options options = schema().read(given);
  if (arxiv && options.classes.empty()) options.classes = kArxivClasses;
  check_shares(options.dev_share, options.test_share);
  return options;
}

// `own`: characters with an id of their own.
DataShape shape_of(const Options& options, int64_t own, int64_t classes) {
  DataShape shape;
  shape.max_len = options.length;
  shape.vocabulary = 1 + (options.characters == "bytes" ? 256 : own + (options.vocabulary == "train" ? 1 : 0));
  shape.id_offset = options.characters == "bytes" ? 1 : 0;
  shape.target = class_target(classes);
  return shape;
}

std::string utf8(char32_t character) {
  const int more = character < 0x80 ? 0 : character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
  constexpr std::array<char32_t, 4> kHeads{0, 0xC0, 0xE0, 0xF0};
  std::string text(1, static_cast<char>(kHeads[static_cast<size_t>(more)] | character >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) text += static_cast<char>(0x80 | (character >> (6 * i) & 0x3F));
  return text;
}

// The ids of characters: 1 and on by their numbers; `other` of those that were not seen.
class Vocabulary {
 public:
  void see(char32_t character) { ids_[character] = 1; }
  void number() {
    for (int32_t& id : ids_)
      if (id != 0) id = ++count_;
  }
  [[nodiscard]] int64_t size() const { return count_; }
  [[nodiscard]] int32_t id(char32_t character) const { return ids_[character] != 0 ? ids_[character] : count_ + 1; }
  // In the order of their ids.
  [[nodiscard]] std::string characters() const {
    std::string result;
    for (char32_t character = 0; character < kCodePoints; ++character)
      if (ids_[character] != 0) result += utf8(character);
    return result;
  }

 private:
  std::vector<int32_t> ids_ = std::vector<int32_t>(kCodePoints, 0);
  int32_t count_ = 0;
};

class Packer {
 public:
  Packer(const DocumentTree& tree, const Options& options)
      : tree_(tree), options_(options), unicode_(options.characters == "unicode") {
    std::vector<int64_t> labels;
    std::vector<std::optional<Split>> made;
    for (const DocumentTree::One& file : tree.files) {
      labels.push_back(file.label);
      made.push_back(file.split);
    }
    splits_ =
        class_splits(labels, made, options.dev_share, options.test_share, static_cast<uint64_t>(options.split_seed));
  }

  void pack(const AddExample& add, DataInfo& info, const ProgressCallback& progress) {
    if (unicode_)
      each("collecting characters", progress, [&](size_t i, const DocumentPart& part) {
        if (options_.vocabulary == "all" || splits_[i] == Split::kTrain)
          for (const char32_t character : part.characters) vocabulary_.see(character);
      });
    vocabulary_.number();
    info.shape = shape_of(options_, vocabulary_.size(), static_cast<int64_t>(tree_.classes.size()));
    info.origin = "files";
    int64_t whole = 0, damaged = 0, unseen = 0;
    each("packing texts", progress, [&](size_t i, const DocumentPart& part) {
      whole += part.whole ? 1 : 0;
      damaged += part.damaged > 0 ? 1 : 0;
      const Elements tokens = encoded(part, info.shape, unseen);
      Example example{{tokens}, {}, tree_.files[i].label};
      example.name = tree_.files[i].path;
      add(splits_[i], example);
    });
    info.details = {{"files", tree_.files.size()},
                    {"classes", tree_.classes},
                    {"split", tree_.files.front().split ? "files" : "own"},
                    {"characters", options_.characters},
                    {"cut", static_cast<int64_t>(tree_.files.size()) - whole},
                    {"with_damaged_characters", damaged},
                    {"unseen_characters", unseen}};
    if (unicode_) {
      info.details["vocabulary"] = vocabulary_.size();
      info.details["vocabulary_characters"] = vocabulary_.characters();
    }
  }

 private:
  // Reads every text anew: together they may be larger than memory.
  template <class Action>
  void each(const char* what, const ProgressCallback& progress, const Action& action) const {
    const Characters characters = unicode_ ? Characters::kUnicode : Characters::kBytes;
    for (size_t i = 0; i < tree_.files.size(); ++i) {
      const bool last = options_.train_part == "last" && splits_[i] == Split::kTrain;
      action(i, read_document(tree_.root / tree_.files[i].path, options_.length, characters,
                              last ? End::kLast : End::kFirst));
      if (progress && i % 64 == 0) progress(what, i, tree_.files.size());
    }
  }

  // As wide as the vocabulary asks for; valid until the next call.
  Elements encoded(const DocumentPart& part, const DataShape& shape, int64_t& unseen) {
    const auto fill = [&](auto& into) -> Elements {
      into.clear();
      for (const char32_t character : part.characters) {
        const int64_t id = unicode_ ? vocabulary_.id(character) : static_cast<int64_t>(character);
        unseen += unicode_ && id > vocabulary_.size() ? 1 : 0;
        into.push_back(static_cast<typename std::decay_t<decltype(into)>::value_type>(id));
      }
      return into;
    };
    const Element element = narrowest(shape.vocabulary - shape.id_offset);
    if (element == Element::kU8) return fill(narrow_);
    if (element == Element::kU16) return fill(middle_);
    return fill(wide_);
  }

  const DocumentTree& tree_;
  const Options& options_;
  bool unicode_;
  std::vector<Split> splits_;
  Vocabulary vocabulary_;
  std::vector<uint8_t> narrow_;
  std::vector<uint16_t> middle_;
  std::vector<int32_t> wide_;
};

std::unique_ptr<DataSource> open(const std::string& name, bool arxiv, const Json& given, const DataLocation& location,
                                 const ProgressCallback& progress) {
  const Options options = read_options(arxiv, given);
  require_folder(name, "a folder of texts for each class, or train/ and test/ with these", location);
  const DocumentTree tree = find_documents(name, location.folder, listed_names("data.classes", options.classes));
  std::vector<std::string> names;
  for (const DocumentTree::One& file : tree.files) names.push_back(file.path);
  Json key = schema().write(options);
  key.update({{"adapter", kAdapterVersion}, {"files", tree_identity(tree.root, names)}});
  const auto build = [&](const AddExample& add, DataInfo& info) { Packer(tree, options).pack(add, info, progress); };
  return open_cached({location.cache, "longdoc", key}, build, progress);
}

CheckReport check(const std::string& name, bool arxiv, const Json& given, const DataLocation& location,
                  const ProgressCallback& progress) {
  const auto source = open(name, arxiv, given, location, progress);
  const DataInfo& info = source->info();
  const auto count = [&](const char* key) { return info.details[key].get<int64_t>(); };
  CheckReport report;
  report.add("every text has characters", CheckOutcome::kPassed, fmt::format("{} texts", count("files")));
  if (info.details["characters"] == "unicode") {
    const int64_t characters = count("vocabulary");
    const bool published = !arxiv || characters == kArxivCharacters;
    report.add("the characters are counted", published ? CheckOutcome::kPassed : CheckOutcome::kNote,
               fmt::format("{} different characters in what is read of the texts{}", characters,
                           published ? "" : fmt::format("; published are {}, of whole texts", kArxivCharacters)));
  }
  if (count("with_damaged_characters") > 0)
    report.add("every text is UTF-8", CheckOutcome::kNote,
               fmt::format("texts with bytes that are no UTF-8, each of which reads as U+FFFD: {}",
                           count("with_damaged_characters")));
  if (count("unseen_characters") > 0)
    report.add(
        "every character occurs in train", CheckOutcome::kNote,
        fmt::format("characters of dev and test that train lacks, which share one id: {}", count("unseen_characters")));
  if (count("cut") > 0)
    report.add("every text is read whole", CheckOutcome::kNote,
               fmt::format("texts longer than data.length, of which {} characters are read: {}", info.shape.max_len,
                           count("cut")));
  check_drawn_splits(*source, report);
  return report;
}

std::string show(const Example& example, const DataInfo& info) {
  const bool unicode = info.details["characters"] == "unicode";
  std::vector<std::string> characters;  // by id
  for (const char byte : info.details.value("vocabulary_characters", ""))
    if ((static_cast<uint8_t>(byte) & 0xC0) != 0x80) characters.emplace_back(1, byte);
    else characters.back() += byte;
  std::string text;
  example.ids[0].visit([&](const auto& ids) {
    for (const auto id : ids) {
      const auto place = static_cast<size_t>(id);
      if (!unicode) text += static_cast<char>(id);
      else text += place >= 1 && place <= characters.size() ? characters[place - 1] : utf8(0xFFFD);
    }
  });
  return fmt::format("{}\n{} characters, label {} ({})", text, example.ids[0].size(), example.label,
                     info.details["classes"][static_cast<size_t>(example.label)].get<std::string>());
}

DatasetDescriptor descriptor(const std::string& set) {
  const bool arxiv = set == "arxiv";
  DatasetDescriptor result;
  result.name = "longdoc/" + set;
  result.title = arxiv ? "long documents: four categories of arXiv papers, character by character"
                       : "long texts in folders by class, character by character";
  result.paper = arxiv ? "He et al., Long Document Classification from Local Word Glimpses via Recurrent Attention "
                         "Learning, 2019; as in Yu et al., Paramixer, 2022"
                       : "this project's own";
  result.source = arxiv ? "https://github.com/LiqunW/Long-document-dataset: the folders cs.AI, cs.NE, math.AC, math.GR"
                        : "any texts, a file each, in folders by class";
  result.options = schema().options();
  result.accepts_length = true;
  result.shape_is_likely = !arxiv;
  result.shape = [arxiv](const Json& given) {
    return shape_of(read_options(arxiv, given), arxiv ? kArxivCharacters : 255, arxiv ? 4 : 2);
  };
  result.check_options = [arxiv](const Json& given) {
    static_cast<void>(listed_names("data.classes", read_options(arxiv, given).classes));
  };
  result.open = [name = result.name, arxiv](const Json& options, const DataLocation& location,
                                            const ProgressCallback& progress) {
    return open(name, arxiv, options, location, progress);
  };
  result.check = [name = result.name, arxiv](const Json& options, const DataLocation& location,
                                             const ProgressCallback& progress) {
    return check(name, arxiv, options, location, progress);
  };
  result.show = show;
  return result;
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  DatasetDescriptor any = descriptor("<name>");
  any.member = [](const std::string& name) { return descriptor(name); };
  return {descriptor("arxiv"), any};
}

}  // namespace xformer::data::adapters::longdoc
