#include "reporting/run_records.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"

namespace xformer::reporting {
namespace {

std::optional<RunRecord> record_of(const Path& path) {
  RunRecord record = read_run_record(path);
  const bool whole = record.schema > 0 && !record.task.empty() && !record.model.empty() && !record.status.empty();
  return whole ? std::optional(std::move(record)) : std::nullopt;
}

}  // namespace

std::vector<RunRecord> read_run_records(const std::vector<std::string>& places) {
  std::vector<RunRecord> result;
  for (const std::string& place : places) {
    XF_CHECK(std::filesystem::exists(place), DataError, "{}: no such file or folder", place);
    if (!std::filesystem::is_directory(place)) {
      std::optional<RunRecord> record = record_of(place);
      XF_CHECK(record, DataError, "{}: expected the record of a run (record.json, or what --record-to wrote)", place);
      result.push_back(std::move(*record));
      continue;
    }
    std::vector<Path> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(place))
      if (entry.is_regular_file() && entry.path().extension() == ".json") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    const size_t before = result.size();
    for (const Path& file : files)
      if (std::optional<RunRecord> record = record_of(file)) result.push_back(std::move(*record));
    XF_CHECK(result.size() > before, DataError, "{}: no record of a run in it", place);
  }
  return result;
}

}  // namespace xformer::reporting
