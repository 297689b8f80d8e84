#include "data/what_is_there.h"

#include <fmt/format.h>

#include <algorithm>

namespace xformer::data {

namespace {
constexpr size_t kMostNames = 8;
}

std::string what_is_there(const Path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string() + (entry.is_directory() ? "/" : ""));
  return found_names(std::move(names), "the folder is empty");
}

std::string found_names(std::vector<std::string> names, const std::string& nothing) {
  if (names.empty()) return nothing;
  std::sort(names.begin(), names.end());
  const size_t more = names.size() > kMostNames ? names.size() - kMostNames : 0;
  names.resize(names.size() - more);
  return fmt::format("found {}{}", fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace xformer::data
