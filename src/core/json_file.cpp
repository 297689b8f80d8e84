#include "core/json_file.h"

#include "core/error.h"

namespace xformer {

Json read_json_file(const Path& path) {
  try {
    return Json::parse(read_file(path));
  } catch (const nlohmann::json::parse_error& error) {
    throw DataError(fmt::format("{}: not valid JSON: {}", path.string(), error.what()));
  }
}

}  // namespace xformer
