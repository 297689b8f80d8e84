// The packed form of a dataset: made once, mapped ever after, and shared by all processes of the machine.
//
//   <cache>/<dataset>/<key>/manifest.json        what it is: version, key, DataInfo
//                           train.bin ...        magic, version | elements | offsets | targets | counts
//                           names.json           by split, the files of examples that have one each; else not there
//
// The key is a hash of all that decides the content (options, or path, size and time of the files), so that
// raw data is never read again to find out that nothing has changed. The folder appears by one rename: it is
// whole or not there. A build that fails or is killed leaves nothing that a later one would take for data.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/progress_callback.h"
#include "data/source.h"

namespace xformer::data {

inline constexpr int64_t kCacheVersion = 2;  // of the layout on disk

struct CacheRequest {
  Path cache;  // the user's cache folder
  std::string dataset;
  Json key;  // all that decides the content
  // Sets what options that leave the content as it is decide of the shape; may be empty.
  std::function<void(DataShape& shape)> adjust = {};
};

using AddExample = std::function<void(Split split, const Example& example)>;
// Sets the info's shape, then calls `add` for every example; sets origin, dropped and details too, the rest is counted.
using BuildCache = std::function<void(const AddExample& add, DataInfo& info)>;

// Maps the cache of the request; makes it first, under a lock, when it is not there. A process that finds
// another one at work waits for it, calling `progress`, which may throw to give up.
// Damage and another version are DataErrors, a full disk and missing rights ResourceErrors.
[[nodiscard]] std::unique_ptr<DataSource> open_cached(const CacheRequest& request, const BuildCache& build,
                                                      const ProgressCallback& progress);

// Where the request's cache lies.
[[nodiscard]] Path cache_entry(const CacheRequest& request);

}  // namespace xformer::data
