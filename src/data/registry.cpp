#include "data/registry.h"

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
