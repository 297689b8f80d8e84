#include "data/manifests.h"

#include <algorithm>
#include <map>

#include "core/error.h"

namespace xformer::data {

const Json& manifest_of(const std::string& task) {
  static const std::map<std::string, Json> kManifests = [] {
    std::map<std::string, Json> result;
    for (const char* const text : manifest_texts()) {
      const Json manifest = Json::parse(text);
      for (const Json& name : manifest.value("tasks", Json::array())) result[name] = manifest;
      result[manifest.at("name")] = manifest;
    }
    return result;
  }();
  static const Json kNone = Json::object();
  const auto found = kManifests.find(task.substr(0, task.find('/')));
  return found == kManifests.end() ? kNone : found->second;
}

bool needed_by(const Json& file, const std::string& task) {
  if (!file.contains("set")) return true;
  const std::string own = task.substr(task.find('/') + 1);  // the whole name where there is no set
  const Json& sets = file["set"];
  return sets.is_array() ? std::find(sets.begin(), sets.end(), Json(own)) != sets.end() : sets == own;
}

readers::ExpectedFile expected_file(const Json& file) {
  readers::ExpectedFile result;
  if (const Json bytes = file.value("bytes", Json()); bytes.is_number()) result.bytes = bytes.get<uint64_t>();
  if (const Json hash = file.value("sha256", Json()); hash.is_string()) result.sha256 = hash;
  if (const Json hash = file.value("md5", Json()); hash.is_string()) result.md5 = hash;
  return result;
}

Json first_hashes(const Path& folder) {
  if (!std::filesystem::exists(folder / kFetchedHashes)) return Json::object();
  Json result = Json::parse(read_file(folder / kFetchedHashes), nullptr, /*allow_exceptions=*/false);
  XF_CHECK(result.is_object(), DataError, "{}: expected a JSON object of names and hashes; remove it to begin anew",
           (folder / kFetchedHashes).string());
  return result;
}

void check_known_files(const std::string& task, const Path& folder, CheckReport& report) {
  if (folder.empty()) return;  // generated: there are no files
  std::vector<std::string> same, differing;
  const auto compare = [&](const readers::ExpectedFile& expected, const std::string& name, const std::string& below) {
    if (expected.sha256.empty() && expected.md5.empty()) return;
    for (const Path& file : {folder.filename() == name ? folder : folder / name, folder / below / name}) {
      std::error_code ignored;
      if (!std::filesystem::is_regular_file(file, ignored)) continue;
      const std::string wrong = readers::difference(expected, file);
      if (wrong.empty()) same.push_back(name);
      else differing.push_back(fmt::format("{} {}", file.string(), wrong));
      return;
    }
  };
  for (const Json& meant : manifest_of(task).value("files", Json::array()))
    if (needed_by(meant, task)) compare(expected_file(meant), meant.at("name"), meant.value("folder", ""));
  const Path around = std::filesystem::is_directory(folder) ? folder : folder.parent_path();
  const Json first = first_hashes(around);
  for (const auto& [name, hash] : first.items())
    if (around == folder || folder.filename() == name) compare({{}, hash, ""}, name, "");
  constexpr const char* kClaim = "files are those whose hash is known";
  if (same.empty() && differing.empty())
    return report.add(kClaim, CheckOutcome::kNote, "the contents were not compared: no hash of these files is known");
  report.add(kClaim, differing.empty() ? CheckOutcome::kPassed : CheckOutcome::kFailed,
             fmt::format("{}", fmt::join(differing.empty() ? same : differing, "; ")));
}

}  // namespace xformer::data
