#include "data/cache/cache.h"

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/file_operations.h"
#include "core/hash.h"
#include "core/text.h"
#include "core/utf8.h"
#include "data/cache/cache_format.h"

namespace xformer::data {
namespace {

namespace fs = std::filesystem;
using cache_format::SplitMap;
using cache_format::SplitWriter;
using file_operations::TemporaryFolder;

constexpr auto kPollInterval = std::chrono::milliseconds(50);
constexpr const char *kManifest = "manifest.json", *kNames = "names.json";

class PackedSource : public DataSource {
 public:
  PackedSource(DataInfo info, std::vector<SplitMap> splits, Path names)
      : info_(std::move(info)), splits_(std::move(splits)), names_file_(std::move(names)) {}
  int64_t size(Split split) const override { return splits_[static_cast<size_t>(split)].count(); }
  Example read(Split split, int64_t index) const override { return splits_[static_cast<size_t>(split)].read(index); }
  const DataInfo& info() const override { return info_; }
  std::string name(Split split, int64_t index) const override {
    std::call_once(names_read_, [this] {  // few ask
      if (fs::exists(names_file_)) names_ = Json::parse(read_file(names_file_));
    });
    const auto found = names_.find(split_name(split));
    return found == names_.end() ? "" : found->at(static_cast<size_t>(index)).get<std::string>();
  }

 private:
  DataInfo info_;
  std::vector<SplitMap> splits_;
  Path names_file_;
  mutable std::once_flag names_read_;
  mutable Json names_ = Json::object();
};

Json shape_to_json(const DataShape& shape) {
  Json further = Json::array();
  for (const Field& field : shape.further) further.push_back(field_to_json(field));
  return {{"max_len", shape.max_len},
          {"vocabulary", shape.vocabulary},
          {"id_offset", shape.id_offset},
          {"zero_is_padding", shape.zero_is_padding},
          {"sequences", shape.sequences},
          {"width", shape.width},
          {"categories", shape.categories},
          {"target", target_to_json(shape.target)},
          {"side", shape.side},
          {"channels", shape.channels},
          {"further", further}};
}

// As manifests had it while targets were three numbers.
TargetSpec numbered_target(const Json& json) {
  const int64_t classes = json.at("classes");
  const int number = json.at("target");
  XF_CHECK(number >= 0 && number <= 2, DataError, "its shape is {}", json.dump());
  return number == 0   ? class_target(classes)
         : number == 1 ? binary_target()
                       : number_target(json.at("target_scale"), json.at("tolerance"));
}

DataShape shape_from_json(const Json& json) {
  DataShape shape;
  json.at("max_len").get_to(shape.max_len);
  json.at("vocabulary").get_to(shape.vocabulary);
  json.at("id_offset").get_to(shape.id_offset);
  json.at("zero_is_padding").get_to(shape.zero_is_padding);
  json.at("sequences").get_to(shape.sequences);
  json.at("width").get_to(shape.width);
  json.at("categories").get_to(shape.categories);
  shape.target = json.at("target").is_object() ? target_from_json(json.at("target")) : numbered_target(json);
  shape.side = json.value("side", shape.side);  // this and what follows: not in caches made before it
  shape.channels = json.value("channels", shape.channels);
  for (const Json& field : json.value("further", Json::array())) shape.further.push_back(field_from_json(field));
  const bool one_kind = shape.vocabulary > 0 ? shape.width == 0 : shape.width > 0;
  XF_CHECK(one_kind && (shape.sequences == 1 || shape.sequences == 2), DataError, "its shape is {}", json.dump());
  return shape;
}

// What a builder adds must be what it said of its examples: a bug otherwise, not a fault of the data.
void check_example(const Example& example, const DataShape& shape, const std::vector<Part>& parts) {
  XF_ASSERT(shape.vocabulary > 0 || (shape.width > 0 && shape.sequences == 1), "examples without a shape");
  std::array<int64_t, 2> places{-1, -1};
  for (const Part& part : parts) {
    const Field& field = part.field;
    if (!field.of_tokens()) {
      const double fact = part.fact(example);
      XF_ASSERT(field.range == 0 || (fact >= 0 && fact < static_cast<double>(field.range)), "{} {} of {}", field.name,
                fact, field.range);
      continue;
    }
    const auto size = static_cast<int64_t>(part.elements(example).size());
    int64_t& own = places.at(static_cast<size_t>(part.sequence));
    if (own < 0) own = size / field.k;
    XF_ASSERT(size == own * field.k, "{}: {} elements in {} places of {}", field.name, size, own, field.k);
    XF_ASSERT(own <= shape.max_len, "{} places where the longest example has {}", own, shape.max_len);
  }
}

// What adapters say of files and folders may hold names that are no UTF-8.
Json in_utf8(const Json& json) {
  if (json.is_string()) return as_utf8(json.get_ref<const std::string&>());
  if (!json.is_structured()) return json;
  Json result = json.is_object() ? Json::object() : Json::array();
  for (const auto& [key, value] : json.items())
    if (json.is_object()) result[as_utf8(key)] = in_utf8(value);
    else result.push_back(in_utf8(value));
  return result;
}

Json info_to_json(const DataInfo& info) {
  Json dropped = Json::array();
  for (const Dropped& item : info.dropped)
    dropped.push_back({{"split", split_name(item.split)}, {"reason", item.reason}, {"count", item.count}});
  return {{"sha256", info.sha256},
          {"origin", info.origin},
          {"sizes", info.sizes},
          {"dropped", dropped},
          {"shape", shape_to_json(info.shape)},
          {"details", in_utf8(info.details)}};
}

DataInfo info_from_json(const Json& json) {
  DataInfo info;
  info.sha256 = json.at("sha256").get<std::string>();
  info.origin = json.at("origin").get<std::string>();
  info.sizes = json.at("sizes").get<std::array<int64_t, 3>>();
  info.shape = shape_from_json(json.at("shape"));
  info.details = json.at("details");
  for (const Json& item : json.at("dropped"))
    info.dropped.push_back({parse_split(item.at("split").get<std::string>()), item.at("reason").get<std::string>(),
                            item.at("count").get<int64_t>()});
  return info;
}

std::string split_file(Split split) { return split_name(split) + ".bin"; }

// Under the lock every temporary folder belongs to a builder that died.
void remove_abandoned_folders(const Path& dataset_folder) {
  std::vector<Path> abandoned;
  for (const auto& entry : fs::directory_iterator(dataset_folder))
    if (entry.is_directory() && entry.path().filename().string().find(".tmp-") != std::string::npos)
      abandoned.push_back(entry.path());
  for (const Path& path : abandoned) fs::remove_all(path);
}

// The data's SHA-256 is over these.
std::string content_line(Split split, int64_t count, const std::string& hash) {
  return fmt::format("{} {} {}\n", split_name(split), count, hash);
}

void build_entry(const CacheRequest& request, const Path& entry, const BuildCache& build) {
  TemporaryFolder temporary(file_operations::temporary_name(entry));
  DataInfo info;
  Json names = Json::object();
  {
    std::vector<std::unique_ptr<SplitWriter>> writers;
    std::vector<Part> parts;
    const auto writer = [&](Split split) -> SplitWriter& {
      if (writers.empty()) {
        parts = parts_of(info.shape);
        for (const Split one : kAllSplits)
          writers.push_back(std::make_unique<SplitWriter>(temporary.path() / split_file(one), info.shape));
      }
      return *writers[static_cast<size_t>(split)];
    };
    build(
        [&](Split split, const Example& example) {
          SplitWriter& into = writer(split);
          check_example(example, info.shape, parts);
          into.add(example);
          if (!example.name.empty()) names[split_name(split)].push_back(as_utf8(example.name));
        },
        info);
    std::string content;
    for (const Split split : kAllSplits) {
      writer(split).finish();
      info.sizes[static_cast<size_t>(split)] = writer(split).count();
      content += content_line(split, writer(split).count(), writer(split).content_hash());
    }
    info.sha256 = sha256(content);
  }
  const Json manifest{{"format", "xformer packed examples"},
                      {"version", kCacheVersion},
                      {"dataset", request.dataset},
                      {"key", in_utf8(request.key)},
                      {"info", info_to_json(info)}};
  if (!names.empty()) write_file_atomically(temporary.path() / kNames, names.dump() + "\n");
  write_file_atomically(temporary.path() / kManifest, manifest.dump(2) + "\n");
  temporary.rename_to(entry);
}

std::unique_ptr<DataSource> map_entry(const CacheRequest& request, const Path& entry) {
  const std::string advice = fmt::format(
      "remove the folder {} (the data is then packed anew) or set XFORMER_CACHE to another folder", entry.string());
  const Json manifest = Json::parse(read_file(entry / kManifest), nullptr, /*allow_exceptions=*/false);
  XF_CHECK(manifest.is_object() && manifest.contains("version") && manifest["version"].is_number_integer(), DataError,
           "{} is damaged: expected a JSON object with a version; {}", (entry / kManifest).string(), advice);
  const auto version = manifest["version"].get<int64_t>();
  XF_CHECK(
      version == kCacheVersion, DataError,
      "the cache {} was made by another version of xformer: its layout has version {}, this program expects {}; {}",
      entry.string(), version, kCacheVersion, advice);
  try {
    XF_CHECK(manifest.at("key") == in_utf8(request.key), DataError, "{} is the cache of other settings: {}",
             (entry / kManifest).string(), manifest.at("key").dump());
    DataInfo info = info_from_json(manifest.at("info"));
    std::vector<SplitMap> splits;
    std::string content;
    for (const Split split : kAllSplits) {
      const Path path = entry / split_file(split);
      splits.emplace_back(path, kCacheVersion, info.shape);
      const int64_t expected = info.sizes[static_cast<size_t>(split)];
      XF_CHECK(splits.back().count() == expected, DataError, "{} is damaged: expected {} examples, found {}",
               path.string(), expected, splits.back().count());
      content += content_line(split, expected, splits.back().content_hash());
    }
    // Records name this hash: read whole each time, at about a gigabyte a second.
    const std::string found = sha256(content);
    XF_CHECK(found == info.sha256, DataError, "{} is damaged: its examples have SHA-256 {}, its manifest says {}",
             entry.string(), found, info.sha256);
    if (request.adjust) request.adjust(info.shape);
    return std::make_unique<PackedSource>(std::move(info), std::move(splits), entry / kNames);
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}; {}", error.what(), advice));
  } catch (const Json::exception& error) {
    throw DataError(fmt::format("{} is damaged: {}; {}", (entry / kManifest).string(), error.what(), advice));
  }
}

// Whether what failed was the cache and not a file that is packed into it: the message names the path.
bool within(const Path& cache, std::string_view message) { return message.find(cache.string()) != message.npos; }

// Waits in short steps, so that a caller who wants to stop can throw from the callback.
FileLock lock_dataset(const Path& path, const ProgressCallback& progress) {
  while (true) {
    if (std::optional<FileLock> lock = FileLock::try_lock(path)) return std::move(*lock);
    if (progress) progress("waiting for another process that makes this data", 0, 0);
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace

Path cache_entry(const CacheRequest& request) {
  // A layout that this program does not know lies elsewhere: it packs the data anew beside it.
  const std::string name = fmt::format("{} {}", kCacheVersion, in_utf8(request.key).dump());
  return request.cache / request.dataset / sha256(name).substr(0, 16);
}

std::unique_ptr<DataSource> open_cached(const CacheRequest& request, const BuildCache& build,
                                        const ProgressCallback& progress) {
  const Path entry = cache_entry(request);
  const Path folder = entry.parent_path();
  std::error_code error;
  if (!fs::exists(entry, error)) {
    try {
      make_folders(folder);
      const FileLock lock = lock_dataset(folder / ".lock", progress);
      if (!fs::exists(entry)) {  // else another process has made it meanwhile
        remove_abandoned_folders(folder);
        build_entry(request, entry, build);
      }
    } catch (const fs::filesystem_error& problem) {
      if (!within(request.cache, problem.path1().string())) throw;
      throw ResourceError(fmt::format("cannot use the cache {}: {}", request.cache.string(), problem.code().message()));
    } catch (const ResourceError& problem) {
      if (!within(request.cache, problem.what())) throw;
      throw ResourceError(fmt::format("{} (the data is packed into {}; XFORMER_CACHE names another folder)",
                                      problem.what(), request.cache.string()));
    }
  }
  return map_entry(request, entry);
}

}  // namespace xformer::data
