// Where --record-to puts records.
#pragma once

#include "core/files.h"
#include "core/run_plan.h"

namespace xformer::engine {

// A .json path is the file; anything else a folder under which records have their places.
[[nodiscard]] Path record_place(const std::string& to, const RunPlan& plan);

// Committed results must come from committed code: UserError for a place under results/ when this program, or the one
// that wrote the record, was built from modified sources.
void check_results_folder(const Path& place, bool dirty);
void check_results_folder(const Path& place);

}  // namespace xformer::engine
