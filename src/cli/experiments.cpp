#include "cli/experiments.h"

#include "core/json.h"
#include "readers/option_file.h"

namespace xformer::cli {

bool is_experiment(const Path& path) {
  if (!readers::is_option_file(path) || !std::filesystem::is_regular_file(path)) return false;
  if (path.extension() != ".json") return true;  // nothing else is written in YAML or TOML
  const Json json = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  return json.is_object() && !json.contains("schema_version") &&
         (json.contains("models") || json.contains("extends") || json.contains("bench"));
}

}  // namespace xformer::cli
