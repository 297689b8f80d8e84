// The records that belong to an experiment.
#pragma once

#include "reporting/run_records.h"
#include "sweep/experiment.h"

namespace xformer::cli {

// results/runs/<name> where that exists, else runs/<name>.
[[nodiscard]] Path records_folder(const sweep::Experiment& experiment);

// One for each run of the experiment, in its order: the record in the folder, or one without a path, of what its task
// is judged by, where there is none. Records in the folder that no run asks for are told to `say` as a number.
[[nodiscard]] std::vector<RunRecord> experiment_records(const sweep::Experiment& experiment, const Path& folder,
                                                        const std::function<void(const std::string&)>& say);

}  // namespace xformer::cli
