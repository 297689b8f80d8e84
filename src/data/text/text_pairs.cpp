#include "data/text/text_pairs.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/pair_symbols.h"
#include "core/plain_files.h"
#include "core/text.h"
#include "data/cache/cache.h"
#include "data/cache/packed_files.h"
#include "data/class_splits.h"
#include "data/what_is_there.h"
#include "readers/line_reader.h"

namespace xformer::data {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kPairsVersion = 1;  // part of the cache's key: raise it when the content made here changes
constexpr size_t kLongestPairLine = 8'000'000;

using SplitFiles = std::array<std::vector<Path>, 3>;

// Of a file by its name in front of the first dot and a known ending, of a folder by its name.
std::optional<Split> split_of(const Path& place) {
  std::string name = place.filename().string();
  if (fs::is_directory(place)) return split_by_name(name);
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  for (const std::string_view ending : {".jsonl", ".json", ".txt"})
    if (name.ends_with(ending)) return split_by_name(name.substr(0, name.size() - ending.size()));
  return std::nullopt;
}

std::vector<Path> files_below(const Path& folder) {
  std::vector<Path> result;
  for (const auto& entry : fs::recursive_directory_iterator(folder, fs::directory_options::follow_directory_symlink))
    if (entry.path().filename().string().front() != '.' && !entry.is_directory()) result.push_back(entry.path());
  std::sort(result.begin(), result.end());
  return result;
}

SplitFiles find_pair_files(const PairTask& task, const Path& folder, bool require_all) {
  XF_CHECK(fs::is_directory(folder), DataError,
           "{}: expected a folder with train.jsonl, dev.jsonl and test.jsonl at {}", task.name, folder.string());
  SplitFiles result;
  std::array<Path, 3> found;
  try {
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::optional<Split> split = split_of(entry.path());
      if (!split) continue;
      Path& before = found[static_cast<size_t>(*split)];
      XF_CHECK(before.empty(), DataError, "two {} splits in {}: {} and {}; expected one of them", split_name(*split),
               folder.string(), std::min(before, entry.path()).filename().string(),
               std::max(before, entry.path()).filename().string());
      before = entry.path();
      auto& files = result[static_cast<size_t>(*split)];
      if (entry.is_directory()) files = files_below(before);
      else files = {before};
      XF_CHECK(!files.empty(), DataError, "{}: expected files of JSON lines in the folder, found none",
               before.string());
    }
  } catch (const fs::filesystem_error& error) {
    fail_reading(error);
  }
  const bool any = std::any_of(result.begin(), result.end(), [](const auto& files) { return !files.empty(); });
  for (const Split split : kAllSplits) {
    const std::string name = split_name(split);
    XF_CHECK(!result[static_cast<size_t>(split)].empty() || (any && !require_all), DataError,
             "no {0} split in {1}: expected {0}.jsonl (or .json, .txt, also with .gz), or a folder {0}/ of such "
             "files{2}; {3}",
             name, folder.string(), split == Split::kDev ? ", or of the name val or validation" : "",
             what_is_there(folder));
  }
  return result;
}

DataShape shape_of(const PairTask& task, const PairOptions& options) {
  DataShape shape;
  shape.max_len = options.length;
  shape.vocabulary = kPairVocabulary;
  shape.sequences = 2;
  shape.target = text_target(kPairClasses, options.written, "byte", task.judged);
  return shape;
}

void pack(const PairTask& task, const PairOptions& options, const SplitFiles& files, const AddExample& add,
          DataInfo& info, const ProgressCallback& progress) {
  std::vector<Path> all;
  int64_t source_cut = 0, text_longer = 0;
  for (const Split split : kAllSplits) {
    Dropped dropped{split, "empty", 0};
    for (const Path& path : files[static_cast<size_t>(split)]) {
      all.push_back(path);
      readers::LineReader lines(path, kLongestPairLine);
      const uint64_t size = size_of_plain_file(path);
      for (std::string_view line; lines.next(line);) {
        if (trim(line).empty()) continue;
        const PairLine pair = task.parse(line, lines.where(), options);
        if (!pair.nothing.empty()) {
          XF_CHECK(options.empty == "skip", DataError,
                   "{}: expected {}, found {} without a character; --set data.empty=skip leaves such lines out",
                   lines.where(), task.lines, pair.nothing);
          ++dropped.count;
          continue;
        }
        source_cut += pair.source_cut ? 1 : 0;
        text_longer += pair.text_longer ? 1 : 0;
        add(split, Example{{pair.source, pair.texts}});
        if (progress && lines.line_number() % 256 == 0)
          progress("packing " + path.filename().string(), lines.bytes_read(), size);
      }
    }
    if (dropped.count > 0) info.dropped.push_back(dropped);
  }
  info.origin = "files";
  info.details = {{"files", file_facts(all)}, {"sources_cut", source_cut}, {"texts_longer", text_longer}};
}

std::unique_ptr<DataSource> open_pairs(const PairTask& task, const Json& given, const DataLocation& location,
                                       const ProgressCallback& progress) {
  const PairOptions options = pair_schema().read(given);
  require_folder(task.name, "train.jsonl, dev.jsonl and test.jsonl, each line " + task.lines, location);
  const SplitFiles files = find_or_offer(
      location.folder, [&](const Path& folder) { return find_pair_files(task, folder, location.require_all_splits); });
  std::vector<Path> all;
  for (const auto& of_split : files) all.insert(all.end(), of_split.begin(), of_split.end());
  Json key = pair_schema().write(options);
  key.update({{"adapter", kPairsVersion}, {"lines", task.lines}, {"files", file_identity(all)}});
  const auto build = [&](const AddExample& add, DataInfo& info) {
    info.shape = shape_of(task, options);
    pack(task, options, files, add, info, progress);
  };
  return open_cached({location.cache, task.judged == Judged::kAnswer ? "qa" : "summarise", key}, build, progress);
}

CheckReport check_pairs(const PairTask& task, const Json& given, const DataLocation& location,
                        const ProgressCallback& progress) {
  const auto source = open_pairs(task, given, location, progress);
  const DataInfo& info = source->info();
  const PairOptions options = pair_schema().read(given);
  CheckReport report;
  int64_t lines = 0, dropped = 0;
  for (const int64_t size : info.sizes) lines += size;
  for (const Dropped& one : info.dropped) dropped += one.count;
  report.add("every line is " + task.lines, CheckOutcome::kPassed, fmt::format("{} lines", lines));
  if (dropped > 0)
    report.add("no line lacks a text", CheckOutcome::kNote, fmt::format("lines left out, without a text: {}", dropped));
  if (const int64_t cut = info.details["sources_cut"]; cut > 0)
    report.add("every source is read whole", CheckOutcome::kNote,
               fmt::format("sources longer than data.length, of which {} symbols are read: {}", options.length, cut));
  if (const int64_t longer = info.details["texts_longer"]; longer > 0)
    report.add("every text can be written whole", CheckOutcome::kNote,
               fmt::format("texts longer than data.written, of which the first {} symbols are learnt: {}",
                           options.written, longer));
  check_duplicates(*source, report);
  describe_splits(*source, report);
  return report;
}

std::string show_pair(const Example& example, const DataInfo&) {
  const std::span<const uint16_t> source = example.ids[0];
  std::span<const uint16_t> texts = example.ids[1];
  std::string result;
  for (const uint16_t id : source)
    if (id == kMarkId) result += "\n--- about\n";
    else result += static_cast<char>(id - kFirstByteId);
  result += "\n--- right";
  size_t count = 0;
  for (; !texts.empty(); ++count) {
    const std::string text = bytes_of_ids(texts);
    result += "\n" + text;
    texts = texts.subspan(std::min(texts.size(), text.size() + 1));
  }
  return fmt::format("{}\n{} symbols, {} right text{}", result, source.size(), count, count == 1 ? "" : "s");
}

}  // namespace

const Schema<PairOptions>& pair_schema() {
  static const Schema<PairOptions> kSchema =
      Schema<PairOptions>()
          .add(&PairOptions::length, "length",
               "bytes that are read of a source (N), and kept of the right texts that answers are compared with",
               between(4, 1e6))
          .add(&PairOptions::written, "written", "bytes of a text that a model writes at most, its end among them",
               between(2, 1e6))
          .add(&PairOptions::empty, "empty", "a line one of whose texts has no character: error, or skip it",
               one_of({"error", "skip"}));
  return kSchema;
}

void append_text(std::vector<uint16_t>& ids, std::string_view bytes, int64_t room) {
  append_bytes(ids, bytes.substr(0, static_cast<size_t>(std::max<int64_t>(room, 0))));
  if (static_cast<int64_t>(bytes.size()) < room) ids.push_back(static_cast<uint16_t>(kEndId));
}

std::vector<uint16_t> question_source(std::string_view question, std::string_view context, int64_t length) {
  const auto most = static_cast<size_t>(length);
  std::vector<uint16_t> ids;
  append_bytes(ids, question.substr(0, most / 2));
  ids.push_back(static_cast<uint16_t>(kMarkId));
  append_bytes(ids, context.substr(0, most - ids.size()));
  return ids;
}

void describe_pairs(DatasetDescriptor& descriptor, const PairTask& task) {
  descriptor.name = task.name;
  descriptor.default_family = "encoder-decoder";
  descriptor.options = pair_schema().options();
  descriptor.accepts_length = true;
  descriptor.shape = [task](const Json& given) { return shape_of(task, pair_schema().read(given)); };
  descriptor.check_options = [](const Json& given) {
    const PairOptions options = pair_schema().read(given);
    XF_CHECK(options.written <= options.length, UserError,
             "data.written: a batch is data.length = {} places wide; expected at most that, got {}", options.length,
             options.written);
  };
  descriptor.open = [task](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
    return open_pairs(task, options, location, progress);
  };
  descriptor.check = [task](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
    return check_pairs(task, options, location, progress);
  };
  descriptor.show = show_pair;
}

}  // namespace xformer::data
