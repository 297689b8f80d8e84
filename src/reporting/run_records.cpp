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

// A file that may have been a record: it is called as one, or is no JSON at all.
bool is_damaged(const Path& path) {
  return path.filename() == "record.json" || !nlohmann::json::accept(read_file(path));
}

std::vector<Path> json_files(const Path& folder) {
  std::vector<Path> files;
  try {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      if (entry.is_regular_file() && entry.path().extension() == ".json") files.push_back(entry.path());
  } catch (const std::filesystem::filesystem_error& error) {
    throw DataError(
        fmt::format("{}: cannot look into {}: {}", folder.string(), error.path1().string(), error.code().message()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<RunRecord> find_run_records(const Path& folder, std::vector<std::string>& notes) {
  XF_CHECK(!std::filesystem::exists(folder) || std::filesystem::is_directory(folder), DataError,
           "{}: expected a folder of records", folder.string());
  std::vector<RunRecord> result;
  if (!std::filesystem::exists(folder)) return result;
  for (const Path& file : json_files(folder)) {
    if (std::optional<RunRecord> record = record_of(file)) result.push_back(std::move(*record));
    else if (is_damaged(file)) notes.push_back(fmt::format("{}: damaged, and left out", file.string()));
  }
  return result;
}

std::vector<RunRecord> read_run_records(const std::vector<std::string>& places, std::vector<std::string>& notes) {
  std::vector<RunRecord> result;
  for (const std::string& place : places) {
    XF_CHECK(std::filesystem::exists(place), DataError, "{}: no such file or folder", place);
    if (!std::filesystem::is_directory(place)) {
      std::optional<RunRecord> record = record_of(place);
      XF_CHECK(record, DataError, "{}: expected the record of a run (record.json, or what --record-to wrote)", place);
      result.push_back(std::move(*record));
      continue;
    }
    std::vector<RunRecord> found = find_run_records(place, notes);
    XF_CHECK(!found.empty(), DataError, "{}: no record of a run in it{}", place,
             notes.empty() ? "" : "; " + notes.back());
    std::move(found.begin(), found.end(), std::back_inserter(result));
  }
  return result;
}

}  // namespace xformer::reporting
