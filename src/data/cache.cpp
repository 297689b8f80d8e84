#include "data/cache.h"

#include <chrono>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/file_operations.h"
#include "core/hash.h"
#include "core/text.h"
#include "data/cache_format.h"

namespace xformer::data {
namespace {

namespace fs = std::filesystem;
using cache_format::SplitMap;
using cache_format::SplitWriter;

constexpr auto kPollInterval = std::chrono::milliseconds(50);
constexpr const char* kManifest = "manifest.json";

class PackedSource : public DataSource {
 public:
  PackedSource(DataInfo info, std::vector<SplitMap> splits) : info_(std::move(info)), splits_(std::move(splits)) {}
  int64_t size(Split split) const override { return splits_[static_cast<size_t>(split)].count(); }
  TokenExample read(Split split, int64_t index) const override {
    return splits_[static_cast<size_t>(split)].read(index);
  }
  const DataInfo& info() const override { return info_; }

 private:
  DataInfo info_;
  std::vector<SplitMap> splits_;
};

Json info_to_json(const DataInfo& info) {
  Json dropped = Json::array();
  for (const Dropped& item : info.dropped)
    dropped.push_back({{"split", split_name(item.split)}, {"reason", item.reason}, {"count", item.count}});
  return {{"sha256", info.sha256},
          {"origin", info.origin},
          {"sizes", info.sizes},
          {"dropped", dropped},
          {"details", info.details}};
}

DataInfo info_from_json(const Json& json) {
  DataInfo info;
  info.sha256 = json.at("sha256").get<std::string>();
  info.origin = json.at("origin").get<std::string>();
  info.sizes = json.at("sizes").get<std::array<int64_t, 3>>();
  info.details = json.at("details");
  for (const Json& item : json.at("dropped"))
    info.dropped.push_back({parse_split(item.at("split").get<std::string>()), item.at("reason").get<std::string>(),
                            item.at("count").get<int64_t>()});
  return info;
}

std::string split_file(Split split) { return split_name(split) + ".bin"; }

// A folder that exists only until it is renamed to its real name.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(Path path) : path_(std::move(path)) {
    std::error_code error;
    if (!fs::create_directory(path_, error)) file_operations::fail("make the folder", path_, error.value());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!kept_) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const Path& path() const { return path_; }
  void rename_to(const Path& target) {
    if (const int error = file_operations::sync_folder(path_); error != 0) file_operations::fail("write", path_, error);
    if (const int error = file_operations::rename(path_, target); error != 0)
      file_operations::fail("make the folder", target, error);
    kept_ = true;
    if (const int error = file_operations::sync_folder(target.parent_path()); error != 0) {
      // Whether the rename survives a power cut is unknown; report it, and leave what is complete.
      file_operations::fail("sync the folder", target.parent_path(), error);
    }
  }

 private:
  Path path_;
  bool kept_ = false;
};

// Under the lock every temporary folder belongs to a builder that died.
void remove_abandoned_folders(const Path& dataset_folder) {
  std::vector<Path> abandoned;
  for (const auto& entry : fs::directory_iterator(dataset_folder))
    if (entry.is_directory() && entry.path().filename().string().find(".tmp-") != std::string::npos)
      abandoned.push_back(entry.path());
  for (const Path& path : abandoned) fs::remove_all(path);
}

void build_entry(const CacheRequest& request, const Path& entry, const BuildCache& build) {
  TemporaryFolder temporary(file_operations::temporary_name(entry));
  DataInfo info;
  {
    std::vector<std::unique_ptr<SplitWriter>> writers;
    for (const Split split : kAllSplits)
      writers.push_back(std::make_unique<SplitWriter>(temporary.path() / split_file(split)));
    build(
        [&](Split split, std::span<const uint8_t> tokens, int64_t label) {
          XF_ASSERT(label >= 0 && label < request.classes, "label {} of {} classes", label, request.classes);
          writers[static_cast<size_t>(split)]->add(tokens, label);
        },
        info);
    std::string content;
    for (const Split split : kAllSplits) {
      SplitWriter& writer = *writers[static_cast<size_t>(split)];
      writer.finish();
      info.sizes[static_cast<size_t>(split)] = writer.count();
      content += fmt::format("{} {} {}\n", split_name(split), writer.count(), writer.content_hash());
    }
    info.sha256 = sha256(content);
  }
  const Json manifest{{"format", "xformer packed tokens"}, {"version", kCacheVersion}, {"dataset", request.dataset},
                      {"classes", request.classes},        {"key", request.key},       {"info", info_to_json(info)}};
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
    XF_CHECK(manifest.at("key") == request.key, DataError, "{} is the cache of other settings: {}",
             (entry / kManifest).string(), manifest.at("key").dump());
    DataInfo info = info_from_json(manifest.at("info"));
    std::vector<SplitMap> splits;
    for (const Split split : kAllSplits) {
      const Path path = entry / split_file(split);
      splits.emplace_back(path, kCacheVersion, request.classes);
      const int64_t expected = info.sizes[static_cast<size_t>(split)];
      XF_CHECK(splits.back().count() == expected, DataError, "{} is damaged: expected {} examples, found {}",
               path.string(), expected, splits.back().count());
    }
    return std::make_unique<PackedSource>(std::move(info), std::move(splits));
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}; {}", error.what(), advice));
  } catch (const Json::exception& error) {
    throw DataError(fmt::format("{} is damaged: {}; {}", (entry / kManifest).string(), error.what(), advice));
  }
}

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
  return request.cache / request.dataset / sha256(request.key.dump()).substr(0, 16);
}

std::unique_ptr<DataSource> open_cached(const CacheRequest& request, const BuildCache& build,
                                        const ProgressCallback& progress) {
  const Path entry = cache_entry(request);
  const Path folder = entry.parent_path();
  std::error_code error;
  if (!fs::exists(entry, error)) {
    try {
      fs::create_directories(folder, error);
      if (error) file_operations::fail("make the folder", folder, error.value());
      const FileLock lock = lock_dataset(folder / ".lock", progress);
      if (!fs::exists(entry)) {  // else another process has made it meanwhile
        remove_abandoned_folders(folder);
        build_entry(request, entry, build);
      }
    } catch (const fs::filesystem_error& problem) {
      throw ResourceError(fmt::format("cannot use the cache {}: {}", request.cache.string(), problem.code().message()));
    } catch (const ResourceError& problem) {
      throw ResourceError(fmt::format("{} (the data is packed into {}; XFORMER_CACHE names another folder)",
                                      problem.what(), request.cache.string()));
    }
  }
  return map_entry(request, entry);
}

}  // namespace xformer::data
