// What tests of adapters share: the options of a task, and a folder of files with a cache beside it.
#pragma once

#include "data/datasets.h"
#include "scratch.h"

namespace xformer::adapter_place {

using namespace data;

inline Json options_of(const std::string& task, const Json& given = Json::object()) {
  Json options = Json::object();
  for (const OptionInfo& option : find_dataset(task).options) options[option.name] = option.fallback;
  options.update(given);
  return options;
}

struct Place {
  scratch::Folder folder, cache;
  [[nodiscard]] DataLocation location() const {
    DataLocation result;
    result.folder = folder.path();
    result.cache = cache.path();
    return result;
  }
  [[nodiscard]] std::unique_ptr<DataSource> open(const std::string& task, const Json& given = Json::object()) const {
    return find_dataset(task).open(options_of(task, given), location(), {});
  }
  // Nothing but locks and folders lies in the cache.
  [[nodiscard]] bool cache_is_empty() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(cache.path()))
      if (entry.is_regular_file() && entry.path().filename() != ".lock") return false;
    return true;
  }
};

}  // namespace xformer::adapter_place
