// Records of runs in files and folders.
#pragma once

#include <string>
#include <vector>

#include "core/run_record.h"

namespace xformer::reporting {

// Of everything below a folder, in the order of paths; none where there is no such folder. JSON that is no record is
// passed over; of what is no JSON, and of a record.json that is no whole record, `notes` gets a sentence. DataErrors: a
// file in place of the folder, a folder below it that may not be read.
[[nodiscard]] std::vector<RunRecord> find_run_records(const Path& folder, std::vector<std::string>& notes);
// Of files and of folders with everything below them, in the order of their paths. DataErrors: a path that is not
// there, a file that is no record, a folder without one.
[[nodiscard]] std::vector<RunRecord> read_run_records(const std::vector<std::string>& places,
                                                      std::vector<std::string>& notes);

}  // namespace xformer::reporting
