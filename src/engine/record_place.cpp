#include "engine/record_place.h"

#include <algorithm>

#include "core/code_version.h"
#include "core/error.h"
#include "sweep/cells.h"

namespace xformer::engine {

Path record_place(const std::string& to, const RunPlan& plan) {
  if (Path(to).extension() == ".json") return to;
  return Path(to) / sweep::place_of(plan, plan.hash()) / "record.json";
}

void check_results_folder(const Path& place, bool dirty) {
  const Path absolute = std::filesystem::absolute(place).lexically_normal();
  const bool in_results = std::find(absolute.begin(), absolute.end(), Path("results")) != absolute.end();
  XF_CHECK(!in_results || !dirty, UserError,
           "--record-to {}: this program was built from modified sources, and results/ takes records of committed code "
           "only; commit, run scripts/setup, and train again",
           place.string());
  std::error_code ignored;
  XF_CHECK(place.extension() != ".json" || !std::filesystem::is_directory(place, ignored), UserError,
           "--record-to {}: expected a file's name (.json) or a folder of records, this is a folder of such a name",
           place.string());
  check_folder_can_be_made(place.extension() == ".json" ? place.parent_path() : place, "the folder of --record-to");
}

void check_results_folder(const Path& place) { check_results_folder(place, code_version().dirty); }

}  // namespace xformer::engine
