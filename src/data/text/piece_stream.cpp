#include "data/text/piece_stream.h"

#include <algorithm>

#include "core/error.h"
#include "core/hash.h"
#include "core/parallel.h"
#include "core/plain_files.h"
#include "core/text.h"
#include "data/cache/cache.h"
#include "data/cache/packed_files.h"
#include "data/class_splits.h"
#include "data/narrow_ids.h"
#include "data/text/corpus_files.h"
#include "readers/documents.h"

namespace xformer::data {
namespace {

constexpr int64_t kPackingVersion = 1;  // part of the caches' keys: raise it when what is made here changes
constexpr int64_t kPage = 65'536;       // pieces of a stream that lie in one example of the cache
constexpr size_t kDocumentsAtOnce = 256, kBytesAtOnce = size_t{32} << 20;
constexpr size_t kLongestLine = 4'000;  // bytes: SentencePiece passes over longer lines, so these are cut

readers::DocumentFormat format_of(const PieceOptions& options) {
  using readers::DocumentEnd;
  const DocumentEnd end = options.documents == "line"      ? DocumentEnd::kLine
                          : options.documents == "file"    ? DocumentEnd::kFile
                          : options.documents == "article" ? DocumentEnd::kArticle
                                                           : DocumentEnd::kBlankLine;
  return {end, options.text_key};
}

// Where the files name no split of their own, shares of their documents are drawn, each by its number alone; validation
// files without test files are the test.
class Splits {
 public:
  Splits(const CorpusFiles& files, const PieceOptions& options)
      : files_(files),
        dev_(files.files(Split::kDev).empty() || files.files(Split::kTest).empty() ? options.dev_share : 0),
        test_(files.named && (!files.files(Split::kDev).empty() || !files.files(Split::kTest).empty())
                  ? 0
                  : options.test_share),
        seed_(derive_seed(static_cast<uint64_t>(options.split_seed), "text/split")) {}

  [[nodiscard]] Split of(Split file, int64_t number) const {
    if (file == Split::kDev) return files_.files(Split::kTest).empty() ? Split::kTest : Split::kDev;
    if (file == Split::kTest) return Split::kTest;
    Stream numbers(seed_, static_cast<uint64_t>(number));
    const double drawn = numbers.next_unit();
    return drawn < test_ ? Split::kTest : drawn < test_ + dev_ ? Split::kDev : Split::kTrain;
  }
  // Shares of train's documents that are dev and test.
  [[nodiscard]] double dev() const { return dev_; }
  [[nodiscard]] double test() const { return test_; }

 private:
  const CorpusFiles& files_;
  double dev_, test_;
  uint64_t seed_;
};

using SeeDocument = std::function<bool(Split split, std::string& text)>;  // false: no more are wanted

// Every document of one file's split after the other.
void for_each_document(const CorpusFiles& files, Split of, const Splits& splits, const PieceOptions& options,
                       const std::string& doing, const ProgressCallback& progress, const SeeDocument& see) {
  int64_t number = 0;
  for (const Path& path : files.files(of)) {
    readers::DocumentReader reader(path, format_of(options));
    const uint64_t size = size_of_plain_file(path);
    for (std::string text; reader.next(text); ++number) {
      if (!see(splits.of(of, number), text)) return;
      if (progress && number % 256 == 0) progress(doing + " " + path.filename().string(), reader.bytes_read(), size);
    }
  }
}

// Lines of the training documents, cut at blanks where they are long.
class TrainingLines {
 public:
  explicit TrainingLines(int64_t most) : most_(most) {}
  // False where there are enough.
  bool add(std::string_view text) {
    for (std::string_view line : split(text, '\n'))
      while (!line.empty()) {
        size_t end = line.size();
        if (end > kLongestLine) {
          end = line.rfind(' ', kLongestLine);
          if (end == std::string_view::npos || end == 0) {
            end = kLongestLine;
            while (end > 1 && (static_cast<uint8_t>(line[end]) & 0xC0) == 0x80) --end;  // between characters
          }
        }
        if (const std::string_view part = trim(line.substr(0, end)); !part.empty()) {
          if (static_cast<int64_t>(lines_.size()) == most_) return false;
          lines_.emplace_back(part);
        }
        line.remove_prefix(end);
      }
    return true;
  }
  bool next(std::string_view& line) {
    if (at_ == lines_.size()) return false;
    line = lines_[at_++];
    return true;
  }

 private:
  int64_t most_;
  size_t at_ = 0;
  std::vector<std::string> lines_;
};

// Trained once for these files and options, and kept beside the packed data.
std::string trained_vocabulary(const CorpusFiles& files, const Splits& splits, const PieceOptions& options,
                               const DataLocation& location, const ProgressCallback& progress) {
  Json key = piece_schema().write(options);
  key.update({{"version", kPackingVersion}, {"files", file_identity(files.all())}});
  const Path folder = location.cache / "piece-vocabularies";
  const Path path = folder / (sha256(key.dump()).substr(0, 32) + ".model");
  if (std::filesystem::exists(path)) return read_file(path);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  XF_CHECK(!error, ResourceError, "cannot make the folder {}: {}", folder.string(), error.message());
  const FileLock lock = FileLock::wait(folder / ".lock");
  if (std::filesystem::exists(path)) return read_file(path);
  TrainingLines lines(options.vocabulary_lines);
  for_each_document(files, Split::kTrain, splits, options, "vocabulary: reading", progress,
                    [&](Split split, std::string& text) { return split != Split::kTrain || lines.add(text); });
  if (progress) progress("training a vocabulary of pieces", 0, 1);
  std::string model =
      train_pieces({options.pieces, options.piece_kind, options.normalization, options.coverage, options.byte_fallback},
                   [&](std::string_view& line) { return lines.next(line); });
  write_file_atomically(path, model);
  return model;
}

std::shared_ptr<const PieceVocabulary> vocabulary_of(const CorpusFiles& files, const Splits& splits,
                                                     const PieceOptions& options, const DataLocation& location,
                                                     const ProgressCallback& progress) {
  std::shared_ptr<const PieceVocabulary> result;
  std::string origin = "the vocabulary trained on this text";
  if (options.vocabulary == "file") {
    const Path path = find_piece_model(location.folder);
    origin = path.string();
    result = std::make_shared<PieceVocabulary>(read_file(path), origin);
  } else {
    result = std::make_shared<PieceVocabulary>(trained_vocabulary(files, splits, options, location, progress), origin);
  }
  XF_CHECK(result->size() == options.pieces, DataError,
           "{} has {} pieces, expected data.pieces = {}: the model is built for as many", origin, result->size(),
           options.pieces);
  XF_CHECK(result->end_of_text() >= 0, DataError,
           "{} has no piece </s>, which stands between documents (spm_train's --eos_id)", origin);
  return result;
}

// Cuts documents into pieces, many at once, and fills pages.
class Packer {
 public:
  Packer(const PieceVocabulary& vocabulary, const AddExample& add) : vocabulary_(vocabulary), add_(add) {}

  bool see(Split split, std::string& text) {
    bytes_ += text.size();
    waiting_.emplace_back(split, std::move(text));
    text.clear();
    if (waiting_.size() >= kDocumentsAtOnce || bytes_ >= kBytesAtOnce) encode();
    return true;
  }
  void finish() {
    encode();
    for (const Split split : kAllSplits) flush(split);
  }
  [[nodiscard]] Json facts(Split split) const { return counts_[static_cast<size_t>(split)].json(); }
  [[nodiscard]] int64_t pieces(Split split) const { return counts_[static_cast<size_t>(split)].pieces; }

 private:
  struct Counts {
    int64_t documents = 0, pieces = 0, words = 0, bytes = 0, unknown = 0;
    [[nodiscard]] Json json() const {
      return {{"documents", documents}, {"pieces", pieces}, {"words", words}, {"bytes", bytes}, {"unknown", unknown}};
    }
  };

  void encode() {
    std::vector<std::vector<int32_t>> cut(waiting_.size());
    for_each_piece(waiting_.size(), 0, [&](size_t i) { vocabulary_.encode(waiting_[i].second, cut[i]); });
    for (size_t i = 0; i < waiting_.size(); ++i) {
      const Split split = waiting_[i].first;
      if (cut[i].empty()) continue;
      cut[i].push_back(vocabulary_.end_of_text());
      Counts& counts = counts_[static_cast<size_t>(split)];
      ++counts.documents;
      counts.bytes += static_cast<int64_t>(waiting_[i].second.size());
      counts.pieces += static_cast<int64_t>(cut[i].size());
      std::vector<int32_t>& page = pages_[static_cast<size_t>(split)];
      for (const int32_t piece : cut[i]) {
        counts.words += vocabulary_.words(piece);
        counts.unknown += piece == vocabulary_.unknown() ? 1 : 0;
        page.push_back(piece);
        if (static_cast<int64_t>(page.size()) == kPage) flush(split);
      }
    }
    waiting_.clear();
    bytes_ = 0;
  }
  void flush(Split split) {
    std::vector<int32_t>& page = pages_[static_cast<size_t>(split)];
    if (page.empty()) return;
    add_(split, {{narrow_.of(page, vocabulary_.size())}});
    page.clear();
  }

  const PieceVocabulary& vocabulary_;
  const AddExample& add_;
  std::vector<std::pair<Split, std::string>> waiting_;
  size_t bytes_ = 0;
  std::array<Counts, 3> counts_{};
  std::array<std::vector<int32_t>, 3> pages_;
  NarrowIds narrow_;
};

void pack(const CorpusFiles& files, const Splits& splits, const PieceOptions& options,
          const PieceVocabulary& vocabulary, const AddExample& add, DataInfo& info, const ProgressCallback& progress) {
  info.shape.max_len = kPage;
  info.shape.vocabulary = vocabulary.size();
  info.shape.zero_is_padding = false;
  info.shape.target = class_target(1);
  info.origin = "files";
  Packer packer(vocabulary, add);
  for (const Split split : kAllSplits)
    for_each_document(files, split, splits, options, "packing", progress,
                      [&](Split of, std::string& text) { return packer.see(of, text); });
  packer.finish();
  Json facts = Json::object();
  for (const Split split : kAllSplits) {
    XF_CHECK(
        packer.pieces(split) > 0, DataError, "{}: no document for {}{}", files.all().front().parent_path().string(),
        split_name(split),
        split == Split::kTrain ? "" : fmt::format("; data.{}_share is a share of those of train", split_name(split)));
    facts[split_name(split)] = packer.facts(split);
  }
  info.details = {{"files", file_facts(files.all())},
                  {"splits", facts},
                  {"split", splits.dev() > 0 || splits.test() > 0 ? "own" : "files"},
                  {"vocabulary", {{"pieces", vocabulary.size()}, {"sha256", vocabulary.sha256()}}}};
}

}  // namespace

const Schema<PieceOptions>& piece_schema() {
  static const Schema<PieceOptions> kSchema =
      Schema<PieceOptions>()
          .add(&PieceOptions::vocabulary, "vocabulary",
               "the pieces: trained (by SentencePiece, on lines of train) or file (the .model beside the text)",
               one_of({"trained", "file"}))
          .add(&PieceOptions::pieces, "pieces", "pieces of the vocabulary", between(8, 1e6))
          .add(&PieceOptions::piece_kind, "piece_kind", "how pieces are trained: unigram or bpe",
               one_of({"unigram", "bpe"}))
          .add(&PieceOptions::normalization, "normalization",
               "what is done with the text first, by SentencePiece's names, where the vocabulary is trained",
               one_of({"nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"}))
          .add(&PieceOptions::coverage, "coverage",
               "share of train's characters that have pieces of their own, where the vocabulary is trained",
               between(0.9, 1))
          .add(&PieceOptions::byte_fallback, "byte_fallback",
               "whether other characters are written in pieces of a byte each, instead of as unknown ones")
          .add(&PieceOptions::vocabulary_lines, "vocabulary_lines",
               "lines of train that a vocabulary is trained on, the first", at_least(1))
          .add(&PieceOptions::documents, "documents",
               "what ends a document of plain text: blank-line, line, file, article (a line _START_ARTICLE_ begins the "
               "next), or auto (article of wiki-40b, else blank-line); of JSON lines each is one",
               one_of({"auto", "blank-line", "line", "file", "article"}))
          .add(&PieceOptions::text_key, "text_key", "key of JSON lines that holds the text")
          .add(&PieceOptions::dev_share, "dev_share", "share of train's documents that is dev where no file is",
               fraction_below_one())
          .add(&PieceOptions::test_share, "test_share", "share of train's documents that is test where no file is",
               fraction_below_one())
          .add(&PieceOptions::split_seed, "split_seed", "seed of these shares, apart from the run's seed", at_least(0));
  return kSchema;
}

void check_pieces(const PieceOptions& options) {
  check_shares(options.dev_share, options.test_share);
  XF_CHECK(!options.text_key.empty(), UserError, "data.text_key: expected the name of a key, got nothing");
}

PieceStream::PieceStream(std::unique_ptr<DataSource> pages, std::shared_ptr<const PieceVocabulary> vocabulary)
    : pages_(std::move(pages)), vocabulary_(std::move(vocabulary)) {
  for (const Split split : kAllSplits)
    if (const int64_t pages = pages_->size(split); pages > 0)
      sizes_[static_cast<size_t>(split)] =
          (pages - 1) * kPage + static_cast<int64_t>(pages_->read(split, pages - 1).ids[0].size());
}

void PieceStream::read(Split split, int64_t begin, std::span<int32_t> into) const {
  const auto count = static_cast<int64_t>(into.size());
  XF_ASSERT(begin >= 0 && begin + count <= size(split), "pieces {} to {} of {}", begin, begin + count, size(split));
  for (int64_t done = 0; done < count;) {
    const int64_t at = (begin + done) % kPage, part = std::min(count - done, kPage - at);
    pages_->read(split, (begin + done) / kPage).ids[0].visit([&](const auto& ids) {
      for (int64_t i = 0; i < part; ++i)
        into[static_cast<size_t>(done + i)] = static_cast<int32_t>(ids[static_cast<size_t>(at + i)]);
    });
    done += part;
  }
}

std::shared_ptr<PieceStream> open_piece_stream(const std::string& task, const PieceOptions& options,
                                               const DataLocation& location, const ProgressCallback& progress) {
  require_folder(task, "files of documents (.txt, .json, .jsonl, .gz behind it or not), or one such file", location);
  const CorpusFiles files = find_corpus(task, location.folder);
  const Splits splits(files, options);
  const auto vocabulary = vocabulary_of(files, splits, options, location, progress);
  Json key = piece_schema().write(options);
  for (const char* const name :
       {"vocabulary", "piece_kind", "normalization", "coverage", "byte_fallback", "vocabulary_lines"})
    key.erase(name);  // the vocabulary's content says it all
  key.update(
      {{"version", kPackingVersion}, {"vocabulary", vocabulary->sha256()}, {"files", file_identity(files.all())}});
  const auto build = [&](const AddExample& add, DataInfo& info) {
    pack(files, splits, options, *vocabulary, add, info, progress);
  };
  return std::make_shared<PieceStream>(open_cached({location.cache, "pieces", key}, build, progress), vocabulary);
}

}  // namespace xformer::data
