#include "reporting/run_records.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "core/error.h"

namespace xformer::reporting {
namespace {

// The last line on training in a run's log; none where there is no log, or that line is no whole one.
std::optional<RunRecord::Train> last_train_line(const Path& log) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(log, ignored)) return std::nullopt;
  const std::string text = read_file(log);
  const size_t event = text.rfind(R"({"event":"train")");
  if (event == std::string::npos) return std::nullopt;
  const Json line =
      Json::parse(text.substr(event, text.find('\n', event) - event), nullptr, /*allow_exceptions=*/false);
  const bool known = line.is_object() && line.contains("loss") && line["loss"].is_number();  // null: not finite
  return known ? std::optional(RunRecord::Train{line.value("step", int64_t{0}), line["loss"]}) : std::nullopt;
}

std::optional<RunRecord> record_of(const Path& path) {
  RunRecord record = read_run_record(path);
  // Records of before it was written there have it in the log beside them.
  if (!record.train) record.train = last_train_line(path.parent_path() / "log.jsonl");
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
