#include "data/what_is_there.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/plain_files.h"
#include "data/class_splits.h"

namespace xformer::data {

namespace {
constexpr size_t kMostNames = 8;
}

std::string what_is_there(const Path& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string(), other = other_than_a_file(entry.path());
    names.push_back(name + (other.empty() ? "" : other == "a folder" ? "/" : fmt::format(" ({})", other)));
  }
  if (error) return fmt::format("it cannot be listed: {}", error.message());
  return found_names(std::move(names), "the folder is empty");
}

std::vector<Path> subfolders(const Path& folder) {
  std::error_code ignored;
  std::vector<Path> result;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.is_directory(ignored)) result.push_back(entry.path());
  std::sort(result.begin(), result.end());
  return result;
}

std::string offered_place(const Path& place, const std::function<bool(const Path& folder)>& holds) {
  std::vector<Path> near = subfolders(place);
  const Path own = place.has_filename() ? place : place.parent_path();
  near.push_back(own.has_parent_path() ? own.parent_path() : Path("."));
  // A split alone is not the set.
  std::erase_if(near, [](const Path& one) { return split_by_name(one.filename().string()).has_value(); });
  const auto found = std::find_if(near.begin(), near.end(), holds);
  return found == near.end() ? "" : fmt::format("; did you mean --data {}?", found->string());
}

std::string found_names(std::vector<std::string> names, const std::string& nothing) {
  if (names.empty()) return nothing;
  std::sort(names.begin(), names.end());
  const size_t more = names.size() > kMostNames ? names.size() - kMostNames : 0;
  names.resize(names.size() - more);
  return fmt::format("found {}{}", fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace xformer::data
