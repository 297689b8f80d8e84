#include "cli/experiments.h"

#include <algorithm>
#include <set>

#include "cli/printed.h"
#include "core/error.h"
#include "core/json.h"
#include "readers/option_file.h"

namespace xformer::cli {

namespace {

bool asks_for_runs(const Json& json) {
  return json.is_object() && !json.contains("schema_version") &&
         (json.contains("models") || json.contains("extends") || json.contains("bench"));
}

}  // namespace

void keep_selected(const reporting::RecordSelection& how, ReportedExperiment& experiment) {
  XF_CHECK(how.duplicates == "newest", UserError,
           "--duplicates {} is of records; {} is an experiment, which has the newest record of each run",
           how.duplicates, experiment.file.string());
  reporting::keep_task(how.task, experiment.records);
}

bool is_experiment(const Path& path) {
  if (!readers::is_option_file(path) || !std::filesystem::is_regular_file(path)) return false;
  if (path.extension() != ".json") return true;
  return asks_for_runs(Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true));
}

std::vector<Path> experiment_files(const Path& folder) {
  std::vector<Path> titled, untitled;
  std::set<Path> extended;  // what others are made of
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string stem = entry.path().stem().string();
    if (!entry.is_regular_file() || stem == "record" || stem == "experiment") continue;
    Json json;
    try {
      if (is_experiment(entry.path())) json = readers::read_option_file(entry.path());
    } catch (const Error& error) {
      note(fmt::format("xformer: {} is left out: {}", entry.path().string(), error.what()));
    }
    if (!asks_for_runs(json)) continue;
    const Json bases = json.value("extends", Json::array());
    for (const Json& base : bases.is_array() ? bases : Json::array({bases}))
      if (base.is_string()) extended.insert((entry.path().parent_path() / base.get<std::string>()).lexically_normal());
    (json.contains("title") ? titled : untitled).push_back(entry.path());
  }
  std::sort(titled.begin(), titled.end());
  if (titled.empty()) return titled;
  for (const Path& file : untitled)
    if (!extended.contains(file.lexically_normal()))
      note(fmt::format("xformer: {} is left out: it has no \"title\", and no experiment extends it", file.string()));
  return titled;
}

}  // namespace xformer::cli
