#include "reporting/run_records.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"

namespace xformer::reporting {
namespace {

std::optional<double> number(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

std::string text(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<RunRecord> record_of(const Path& path) {
  const Json json = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  const bool record = json.is_object() && json.contains("schema_version") && !text(json, "task").empty() &&
                      !text(json, "model").empty() && !text(json, "status").empty();
  if (!record) return std::nullopt;
  const auto part = [&](const char* key) {
    return json.contains(key) && json[key].is_object() ? json[key] : Json::object();
  };
  const Json test = part("test"), software = part("software"), data = part("data");
  RunRecord result;
  result.path = path;
  result.task = text(json, "task");
  result.model = text(json, "model");
  result.protocol = text(json, "protocol");
  result.status = text(json, "status");
  result.message = text(json, "message");
  result.experiment = text(json, "experiment");
  result.seed = json.value("seed", int64_t{0});
  result.plan = part("plan");
  result.rmse = number(json, "rmse").has_value();
  result.score = result.rmse ? number(json, "rmse") : number(json, "accuracy");
  result.chance = number(json, "chance");
  result.examples = static_cast<int64_t>(number(test, "examples").value_or(0));
  if (json.contains("dev") && json["dev"].is_array())
    for (const Json& point : json["dev"])
      if (const auto step = number(point, "step"), score = number(point, result.rmse ? "rmse" : "accuracy");
          step && score)
        result.dev.push_back({static_cast<int64_t>(*step), *score});
  result.parameters = static_cast<int64_t>(number(json, "parameters").value_or(0));
  result.examples_per_s = number(json, "examples_per_s").value_or(0);
  result.peak_device_bytes = number(json, "peak_device_bytes").value_or(0);
  result.commit = text(software, "commit");
  result.data_sha256 = text(data, "sha256");
  result.command = text(json, "command");
  return result;
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
