#include "cli/experiments.h"

#include "core/json.h"

namespace xformer::cli {

bool is_experiment(const Path& path) {
  if (path.extension() != ".json" || !std::filesystem::is_regular_file(path)) return false;
  const Json json = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  return json.is_object() && !json.contains("schema_version") &&
         (json.contains("models") || json.contains("extends") || json.contains("bench"));
}

}  // namespace xformer::cli
