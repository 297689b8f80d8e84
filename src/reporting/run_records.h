// Records of runs in files and folders.
#pragma once

#include <string>
#include <vector>

#include "core/run_record.h"

namespace xformer::reporting {

// Of files and of folders with everything below them, in the order of their paths. JSON in a folder that is no record
// is passed over. DataErrors: a path that is not there, a file that is no record, a folder without one.
[[nodiscard]] std::vector<RunRecord> read_run_records(const std::vector<std::string>& places);

}  // namespace xformer::reporting
