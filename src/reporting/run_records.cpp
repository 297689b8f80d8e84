#include "reporting/run_records.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "core/error.h"

namespace xformer::reporting {
namespace {

std::optional<RunRecord> record_of(const Path& path) {
  RunRecord record = read_run_record(path);
  const bool whole = record.schema > 0 && !record.task.empty() && !record.model.empty() && !record.status.empty();
  return whole ? std::optional(std::move(record)) : std::nullopt;
}

}  // namespace

std::vector<RunRecord> find_run_records(const Path& folder) {
  XF_CHECK(!std::filesystem::exists(folder) || std::filesystem::is_directory(folder), DataError,
           "{}: expected a folder of records", folder.string());
  std::vector<Path> files;
  if (std::filesystem::exists(folder))
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      if (entry.is_regular_file() && entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<RunRecord> result;
  for (const Path& file : files)
    if (std::optional<RunRecord> record = record_of(file)) result.push_back(std::move(*record));
  return result;
}

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
    std::vector<RunRecord> found = find_run_records(place);
    XF_CHECK(!found.empty(), DataError, "{}: no record of a run in it", place);
    std::move(found.begin(), found.end(), std::back_inserter(result));
  }
  return result;
}

}  // namespace xformer::reporting
