#include "cli/experiments.h"

#include <algorithm>

#include "core/json.h"
#include "readers/option_file.h"

namespace xformer::cli {

namespace {

// Whether the file itself, not one that it extends, has a title.
bool has_title(const Path& path) {
  const Json json = readers::read_option_file(path);
  return json.is_object() && json.contains("title");
}

}  // namespace

bool is_experiment(const Path& path) {
  if (!readers::is_option_file(path) || !std::filesystem::is_regular_file(path)) return false;
  if (path.extension() != ".json") return true;  // nothing else is written in YAML or TOML
  const Json json = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  return json.is_object() && !json.contains("schema_version") &&
         (json.contains("models") || json.contains("extends") || json.contains("bench"));
}

std::vector<Path> experiment_files(const Path& folder) {
  std::vector<Path> result;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string stem = entry.path().stem().string();
    if (entry.is_regular_file() && stem != "record" && stem != "experiment" && is_experiment(entry.path()) &&
        has_title(entry.path()))
      result.push_back(entry.path());
  }
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace xformer::cli
