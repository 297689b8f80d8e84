#include "plan/protocols.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "core/error.h"
#include "core/names.h"

namespace xformer::plan {

namespace {

// Nothing where no settings of the file name the task.
std::optional<Protocol> protocol_for(const Json& file, const std::string& task) {
  std::optional<Protocol> result;
  for (const Json& settings : file["settings"]) {
    const Json& tasks = settings["tasks"];
    if (std::none_of(tasks.begin(), tasks.end(),
                     [&](const Json& pattern) { return matches_pattern(pattern.get<std::string>(), task); }))
      continue;
    if (!result) result = Protocol{file["name"], "", Json::object()};
    if (settings.contains("extends")) {
      const auto& files = protocol_files();
      const auto base = std::find_if(files.begin(), files.end(),
                                     [&](const Json& other) { return other["name"] == settings["extends"]; });
      XF_ASSERT(base != files.end(), "protocol {} extends none that is known", result->name);
      const std::optional<Protocol> extended = protocol_for(*base, task);
      XF_ASSERT(extended, "protocol {} extends one that {} has not", result->name, task);
      result->values.update(extended->values);
    }
    result->values.update(settings.value("values", Json::object()));
    result->summary = settings.value("summary", result->summary);
  }
  return result;
}

}  // namespace

const std::vector<Json>& protocol_files() {
  static const std::vector<Json> kFiles = [] {
    std::vector<Json> files;
    for (const char* const text : protocol_texts()) files.push_back(Json::parse(text));
    const auto order = [](const Json& file) { return file["order"].get<int64_t>(); };
    std::stable_sort(files.begin(), files.end(), [&](const Json& a, const Json& b) { return order(a) < order(b); });
    return files;
  }();
  return kFiles;
}

const std::vector<Protocol>& protocols_of(const std::string& task) {
  static std::mutex mutex;
  static std::map<std::string, std::vector<Protocol>> known;  // never moves what it holds
  const std::lock_guard lock(mutex);
  const auto [place, fresh] = known.try_emplace(task);
  if (fresh)
    for (const Json& file : protocol_files())
      if (std::optional<Protocol> protocol = protocol_for(file, task)) place->second.push_back(*std::move(protocol));
  return place->second;
}

const Protocol& find_protocol(const std::string& task, const std::string& name) {
  const std::vector<Protocol>& protocols = protocols_of(task);
  XF_ASSERT(!protocols.empty(), "no file under protocols/ names {}", task);
  if (name.empty()) return protocols.front();
  std::vector<std::string> names;
  for (const Protocol& protocol : protocols) {
    if (canonical_name(protocol.name) == canonical_name(name)) return protocol;
    names.push_back(protocol.name);
  }
  throw UserError(unknown_name_message("protocol of " + task, name, names));
}

}  // namespace xformer::plan
