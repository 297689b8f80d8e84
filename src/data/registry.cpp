#include "data/registry.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>

#define XFORMER_DESCRIBE_TYPE std::vector<xformer::data::DatasetDescriptor>
#include "data/adapters.inc"

namespace xformer::data {

const Registry<DatasetDescriptor>& datasets() {
  static const Registry<DatasetDescriptor> kDatasets("task", [] {
    std::vector<DatasetDescriptor> result;
    adapters::for_each_family(
        [&](std::vector<DatasetDescriptor> family) { result.insert(result.end(), family.begin(), family.end()); });
    return result;
  }());
  return kDatasets;
}

const DatasetDescriptor& find_dataset(const std::string& name) {
  if (const DatasetDescriptor* known = datasets().find(name)) return *known;
  const size_t slash = name.find('/');
  const std::string member = slash == std::string::npos ? "" : name.substr(slash + 1);
  const bool plain = !member.empty() && std::all_of(member.begin(), member.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '-' || letter == '_';
  });
  if (plain) {
    for (const DatasetDescriptor& entry : datasets().all()) {
      if (!entry.member || !entry.name.starts_with(canonical_name(name.substr(0, slash)) + "/")) continue;
      static std::mutex mutex;
      static std::map<std::string, DatasetDescriptor> members;  // never moves what it holds
      const std::lock_guard lock(mutex);
      return members.try_emplace(name, entry.member(member)).first->second;
    }
  }
  return datasets().get(name);  // says what is wrong
}

const Protocol& find_protocol(const DatasetDescriptor& dataset, const std::string& name) {
  if (name.empty()) return dataset.protocols.front();
  std::vector<std::string> names;
  for (const Protocol& protocol : dataset.protocols) {
    if (canonical_name(protocol.name) == canonical_name(name)) return protocol;
    names.push_back(protocol.name);
  }
  throw UserError(unknown_name_message("protocol of " + dataset.name, name, names));
}

}  // namespace xformer::data
