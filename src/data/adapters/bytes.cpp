// Language modelling of the bytes of one file, or of the 27 characters of text8 (tasks-more 11): `bytes/enwik8`,
// `bytes/text8` (Mahoney's benchmarks of compression) and `bytes/<name>`, any other. The file is mapped, and read where
// it lies.
//
// Splits are parts of the file one behind the other, cut at bytes: of 100,000,000 the first 90 million are train, then
// five and five. A split is a stream of its own. Its place i holds the symbol to be predicted as label, and as id the
// symbol before it, counted from 1; id 0 stands in front of the stream's first. So every symbol is a label once.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "core/hash.h"
#include "core/names.h"
#include "core/text.h"
#include "core/utf8.h"
#include "data/cache/packed_files.h"
#include "data/check.h"
#include "data/generated_source.h"
#include "data/manifests.h"
#include "data/text/byte_text.h"
#include "data/text/stream_options.h"
#include "data/text/stream_symbols.h"
#include "data/what_is_there.h"
#include "readers/archive.h"
#include "readers/lfs_pointer.h"

namespace xformer::data::adapters::bytes {
namespace {

constexpr size_t kPiece = size_t{16} << 20;  // read at once where all is read

struct Options : StreamOptions {
  double dev_share = 0.05, test_share = 0.05;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .include(stream_schema("symbols"))
          .add(&Options::dev_share, "dev_share", "part of the file before the test part that is dev",
               fraction_below_one())
          .add(&Options::test_share, "test_share", "part of the file in the end that is test", fraction_below_one());
  return kSchema;
}

Options read_options(const Json& options) { return schema().read(options); }

void check_options(const Options& options) {
  check_stream(options);
  XF_CHECK(options.dev_share + options.test_share < 1, UserError,
           "data.dev_share and data.test_share: {:g} and {:g} of the file leave nothing to train on", options.dev_share,
           options.test_share);
}

struct Known {
  std::string name;
  bool letters = false;
  int64_t bytes = 0;  // as published; 0: any
};

DataShape shape_of(const Known& known, const Options& options) {
  const int64_t symbols = StreamSymbols(known.letters).count();
  DataShape shape;
  shape.max_len = options.length;
  shape.vocabulary = symbols + 1;
  shape.zero_is_padding = false;
  shape.target =
      place_target(symbols, {.symbol = known.letters ? "character" : "byte", .scoring = scoring_name(options)});
  if (options.windows == "lanes") shape.target.parameters["lanes"] = true;
  return shape;
}

class ByteSource : public DataSource {
 public:
  ByteSource(const Known& known, const Options& options, const Path& path, const ProgressCallback& progress)
      : file_(path), options_(options), symbols_(known.letters) {
    const auto size = static_cast<int64_t>(file_.bytes().size());
    const auto part = [&](double share) { return static_cast<int64_t>(share * static_cast<double>(size) + 1e-6); };
    sizes_ = {size - part(options.dev_share) - part(options.test_share), part(options.dev_share),
              part(options.test_share)};
    XF_CHECK(sizes_[0] >= options.length, DataError,
             "{} has {} bytes, of which {} are for training; expected at least data.length = {}", path.string(),
             format_count(static_cast<uint64_t>(size)), format_count(static_cast<uint64_t>(sizes_[0])), options.length);
    info_.sha256 = look_through(path, progress);
    info_.origin = "files";
    info_.shape = shape_of(known, options);
    Json parts = Json::object();
    for (const Split split : kAllSplits) {
      info_.sizes[static_cast<size_t>(split)] = windows(split).count();
      parts[split_name(split)] = {begin_of(split), begin_of(split) + size_of(split)};
    }
    const Json file{{"name", as_utf8(path.filename().string())}, {"bytes", size}, {"sha256", info_.sha256}};
    info_.details = {
        {"files", Json::array({file})}, {"bytes", parts}, {"scoring", info_.shape.target.parameters["scoring"]}};
    if (known.bytes > 0 && known.bytes != size) info_.details["published_bytes"] = known.bytes;
  }

  [[nodiscard]] int64_t size(Split split) const override { return info_.sizes[static_cast<size_t>(split)]; }
  [[nodiscard]] const DataInfo& info() const override { return info_; }
  [[nodiscard]] Example read(Split split, int64_t index) const override {
    return example(split, windows(split).at(index));
  }
  [[nodiscard]] Example augmented(Split split, int64_t index, Stream& numbers) const override {
    if (options_.windows != "random") return read(split, index);
    const int64_t last = size_of(split) - options_.length;
    return example(split,
                   {static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(last + 1))), options_.length, 0});
  }

  // In bytes of the file.
  [[nodiscard]] int64_t size_of(Split split) const { return sizes_[static_cast<size_t>(split)]; }
  // How often each symbol stands in a split.
  [[nodiscard]] std::array<int64_t, 256> counts(Split split) const {
    std::array<int64_t, 256> result{};
    for (int64_t i = 0; i < size_of(split); ++i) ++result[static_cast<size_t>(symbol(begin_of(split) + i))];
    return result;
  }

 private:
  [[nodiscard]] int64_t begin_of(Split split) const {
    int64_t begin = 0;
    for (size_t i = 0; i < static_cast<size_t>(split); ++i) begin += sizes_[i];
    return begin;
  }
  [[nodiscard]] int16_t symbol(int64_t place) const {
    return symbols_.of(static_cast<uint8_t>(file_.bytes()[static_cast<size_t>(place)]));
  }
  [[nodiscard]] StreamWindows windows(Split split) const {
    return windows_of(options_, size_of(split), split == Split::kTrain);
  }

  // The hash of the content, whose bytes are all symbols.
  std::string look_through(const Path& path, const ProgressCallback& progress) const {
    const std::string_view all(reinterpret_cast<const char*>(file_.bytes().data()), file_.bytes().size());
    Sha256 hash;
    for (size_t done = 0; done < all.size(); done += kPiece) {
      const std::string_view piece = all.substr(done, kPiece);
      for (size_t i = 0; i < piece.size(); ++i)
        XF_CHECK(symbols_.of(static_cast<uint8_t>(piece[i])) >= 0, DataError,
                 "{}: byte {} is {}, expected a blank or a letter from a to z (bytes/<name> takes any file)",
                 path.string(), done + i, quoted(piece.substr(i, 1)));
      hash.update(piece);
      if (progress) progress("reading " + path.filename().string(), done + piece.size(), all.size());
    }
    return hash.hex();
  }

  [[nodiscard]] Example example(Split split, const StreamWindow& window) const {
    static thread_local ExampleBuffers buffers;
    const auto length = static_cast<size_t>(window.length);
    buffers.wide_ids.resize(length);
    buffers.labels.resize(length);
    const int64_t first = begin_of(split);
    for (size_t i = 0; i < length; ++i) {
      const int64_t place = window.begin + static_cast<int64_t>(i);
      buffers.wide_ids[i] = place == 0 ? uint16_t{0} : static_cast<uint16_t>(symbol(first + place - 1) + 1);
      buffers.labels[i] = static_cast<int64_t>(i) < window.counted_from ? kNoLabel : symbol(first + place);
    }
    return labelled_places(buffers, info_.shape.vocabulary);
  }

  MappedFile file_;
  Options options_;
  StreamSymbols symbols_;
  std::array<int64_t, 3> sizes_{};
  DataInfo info_;
};

// The file `name` of an archive, unpacked once.
Path unpacked(const Path& archive, const std::string& name, const DataLocation& location,
              const ProgressCallback& progress) {
  namespace fs = std::filesystem;
  const Path folder = location.cache / "bytes-unpacked" / sha256(file_identity({archive}).dump()).substr(0, 16);
  if (fs::exists(folder / name)) return folder / name;
  std::vector<std::string> names;
  readers::for_each_entry(archive, {}, [&](const std::string& path, readers::EntryReader&) { names.push_back(path); });
  XF_CHECK(std::find(names.begin(), names.end(), name) != names.end(), DataError, "no file {} in {}; {}", name,
           archive.string(), found_names(names, "the archive holds no file"));
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  XF_CHECK(!error, ResourceError, "cannot make the folder {}: {}", folder.parent_path().string(), error.message());
  const FileLock lock = FileLock::wait(folder.parent_path() / ".lock");
  if (!fs::exists(folder))
    readers::unpack(archive, folder, {}, progress, [&](const std::string& path) { return path == name; });
  return folder / name;
}

Path find_file(const std::string& name, const Path& place) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(place)) return place;
  for (const char* ending : {"", ".txt", ".zip"})
    if (const Path file = place / (name + ending); fs::is_symlink(file) || fs::exists(file)) {
      XF_CHECK(!fs::is_directory(file), DataError, "{} is a folder; expected a file of bytes", file.string());
      return file;
    }
  throw DataError(
      fmt::format("no file {0} (or {0}.txt, {0}.zip) in {1}; {2}", name, place.string(), what_is_there(place)));
}

std::unique_ptr<ByteSource> open(const Known& known, const Json& given, const DataLocation& location,
                                 const ProgressCallback& progress) {
  const Options options = read_options(given);
  check_options(options);
  require_folder("bytes/" + known.name,
                 fmt::format("{0} (or {0}.txt, or {0}.zip of it; or any file itself)", known.name), location);
  Path path = find_or_offer(location.folder, [&](const Path& place) { return find_file(known.name, place); });
  std::string start;
  {
    const MappedFile file(path);
    start = text_of({reinterpret_cast<const uint8_t*>(file.bytes().data()), std::min<size_t>(file.bytes().size(), 64)});
  }
  readers::refuse_lfs_pointer(start, path.string());
  XF_CHECK(!start.starts_with("\x1f\x8b"), DataError, "{} is compressed: `gzip -d` makes the file of it",
           path.string());
  if (start.starts_with("PK\3\4") || start.starts_with("PK\5\6")) path = unpacked(path, known.name, location, progress);
  return std::make_unique<ByteSource>(known, options, path, progress);
}

CheckReport check(const Known& known, const Json& given, const DataLocation& location,
                  const ProgressCallback& progress) {
  const auto source = open(known, given, location, progress);
  CheckReport report;
  report.add(
      "every byte is a symbol", CheckOutcome::kPassed,
      fmt::format("{} bytes, {} symbols", format_count(source->info().details["files"][0]["bytes"].get<uint64_t>()),
                  source->info().shape.target.classes()));
  std::vector<std::string> entropies;
  for (const Split split : kAllSplits) {
    const auto all = static_cast<double>(source->size_of(split));
    double bits = 0;
    int64_t different = 0;
    for (const int64_t count : source->counts(split)) {
      if (count == 0) continue;
      ++different;
      bits -= static_cast<double>(count) / all * std::log2(static_cast<double>(count) / all);
    }
    // What a model that knows nothing but how often each symbol stands there needs at least.
    entropies.push_back(fmt::format("{} {:.4f}", split_name(split), bits));
    report.splits[split_name(split)] = {{"examples", source->size(split)},
                                        {"bytes", source->size_of(split)},
                                        {"symbols", different},
                                        {"entropy_bits", bits}};
  }
  report.add("the entropy of the symbols, in bits", CheckOutcome::kPassed,
             fmt::format("{}", fmt::join(entropies, ", ")));
  check_known_files("bytes/" + known.name, location.folder, report);
  return report;
}

std::string show(bool letters, const Example& example, const DataInfo& info) {
  std::string text;
  int64_t context = 0;
  const std::span<const int32_t> labels = example.further[0].as<int32_t>();
  example.ids[0].visit([&](const auto& ids) {
    // A place that is context has its symbol as the id behind it.
    for (size_t i = 0; i < labels.size(); ++i) {
      context += labels[i] == kNoLabel ? 1 : 0;
      const auto symbol = labels[i] != kNoLabel ? static_cast<int>(labels[i])
                          : i + 1 < ids.size()  ? static_cast<int>(ids[i + 1]) - 1
                                                : 0;
      text += StreamSymbols(letters).byte(symbol);
    }
  });
  return fmt::format("{}\n{} symbols, the first {} context (scoring {})", quoted(text, text.size()), labels.size(),
                     context, info.details["scoring"].get<std::string>());
}

DatasetDescriptor descriptor(const Known& known) {
  DatasetDescriptor result;
  result.name = "bytes/" + known.name;
  result.title = known.letters     ? "next character of text8: Wikipedia's text in small letters"
                 : known.bytes > 0 ? "next byte of " + known.name + ": Wikipedia's XML"
                                   : "next byte of any file";
  result.paper = known.bytes > 0 ? "Mahoney, Large Text Compression Benchmark, 2006" : "this project's own";
  result.source = known.bytes > 0 ? fmt::format("https://mattmahoney.net/dc/{}.zip", known.name) : "any file";
  result.default_family = "decoder";
  result.options = schema().options();
  result.accepts_length = true;
  result.shape = [known](const Json& options) { return shape_of(known, read_options(options)); };
  result.check_options = [](const Json& options) { check_options(read_options(options)); };
  result.open = [known](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
    return open(known, options, location, progress);
  };
  result.check = [known](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
    return check(known, options, location, progress);
  };
  result.show = [letters = known.letters](const Example& example, const DataInfo& info) {
    return show(letters, example, info);
  };
  return result;
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  std::vector<DatasetDescriptor> result{descriptor({"enwik8", false, 100'000'000}),
                                        descriptor({"text8", true, 100'000'000})};
  DatasetDescriptor other = descriptor({"<name>"});
  other.member = [](const std::string& name) { return descriptor({name}); };
  result.push_back(other);
  return result;
}

}  // namespace xformer::data::adapters::bytes
