#include "data/manifests.h"

#include <map>

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

readers::ExpectedFile expected_file(const Json& file) {
  readers::ExpectedFile result;
  if (const Json bytes = file.value("bytes", Json()); bytes.is_number()) result.bytes = bytes.get<uint64_t>();
  if (const Json hash = file.value("sha256", Json()); hash.is_string()) result.sha256 = hash;
  if (const Json hash = file.value("md5", Json()); hash.is_string()) result.md5 = hash;
  return result;
}

void check_known_files(const std::string& task, const Path& folder, CheckReport& report) {
  std::vector<std::string> same, differing;
  for (const Json& meant : manifest_of(task).value("files", Json::array())) {
    const readers::ExpectedFile expected = expected_file(meant);
    if (expected.sha256.empty() && expected.md5.empty()) continue;
    const std::string name = meant.at("name");
    const Path file = folder.filename() == name ? folder : folder / name;
    if (!std::filesystem::is_regular_file(file)) continue;
    const std::string wrong = readers::difference(expected, file);
    if (wrong.empty()) same.push_back(name);
    else differing.push_back(fmt::format("{} {}", file.string(), wrong));
  }
  if (same.empty() && differing.empty()) return;
  report.add("files are those whose hash is known", differing.empty() ? CheckOutcome::kPassed : CheckOutcome::kFailed,
             fmt::format("{}", fmt::join(differing.empty() ? same : differing, "; ")));
}

}  // namespace xformer::data
