#include "data/manifests.h"

#include <map>

#include "core/hash.h"

namespace xformer::data {
namespace {

// "" where the file is the one that is meant, else what differs.
std::string difference(const Json& meant, const Path& file) {
  const Json bytes = meant.value("bytes", Json());
  if (const uint64_t size = std::filesystem::file_size(file); bytes.is_number() && bytes != size)
    return fmt::format("has {} bytes, expected {}", size, bytes.dump());
  for (const auto& [name, hash] : {std::pair{"sha256", &sha256_of_file}, {"md5", &md5_of_file}})
    if (const Json stated = meant.value(name, Json()); stated.is_string())
      if (const std::string found = hash(file); stated != found)
        return fmt::format("has {} {}, expected {}", name, found, stated.get<std::string>());
  return "";
}

}  // namespace

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

void check_known_files(const std::string& task, const Path& folder, CheckReport& report) {
  std::vector<std::string> same, differing;
  for (const Json& meant : manifest_of(task).value("files", Json::array())) {
    if (!meant.value("sha256", Json()).is_string() && !meant.value("md5", Json()).is_string()) continue;
    const std::string name = meant.at("name");
    const Path file = folder.filename() == name ? folder : folder / name;
    if (!std::filesystem::is_regular_file(file)) continue;
    const std::string wrong = difference(meant, file);
    if (wrong.empty()) same.push_back(name);
    else differing.push_back(fmt::format("{} {}", file.string(), wrong));
  }
  if (same.empty() && differing.empty()) return;
  report.add("files are those whose hash is known", differing.empty() ? CheckOutcome::kPassed : CheckOutcome::kFailed,
             fmt::format("{}", fmt::join(differing.empty() ? same : differing, "; ")));
}

}  // namespace xformer::data
