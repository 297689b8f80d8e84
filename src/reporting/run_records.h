// Records of runs in files and folders.
#pragma once

#include <string>
#include <vector>

#include "core/run_record.h"

namespace xformer::reporting {

// Of everything below a folder, in the order of paths; none where there is no such folder. JSON that is no record is
// passed over. DataError of a file.
[[nodiscard]] std::vector<RunRecord> find_run_records(const Path& folder);
// Of files and of folders with everything below them, in the order of their paths. JSON in a folder that is no record
// is passed over. DataErrors: a path that is not there, a file that is no record, a folder without one.
[[nodiscard]] std::vector<RunRecord> read_run_records(const std::vector<std::string>& places);

}  // namespace xformer::reporting
