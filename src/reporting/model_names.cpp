#include "reporting/model_names.h"

#include <set>
#include <utility>

namespace xformer::reporting {
namespace {

// A model whatever the task: family and attention. The dual encoder is the encoder where a task has pairs.
using Model = std::pair<std::string, std::string>;

Model model_of(const RunRecord& record) {
  // Behind a blank may stand a folder (record_selection.h).
  const size_t slash = record.model.substr(0, record.model.find(' ')).find('/');
  return {record.family == "dual-encoder" ? "encoder" : record.family, record.model.substr(slash + 1)};
}

}  // namespace

std::map<const RunRecord*, std::string> model_names(const std::vector<RunRecord>& records) {
  std::map<Model, std::string> typed;
  for (const RunRecord& record : records)
    if (record.called() != record.model) typed.emplace(model_of(record), record.called());
  std::map<const RunRecord*, std::string> result;
  std::map<std::string, std::set<std::string>> families;
  for (const RunRecord& record : records) {
    const Model model = model_of(record);
    const auto found = typed.find(model);
    result[&record] = found == typed.end() ? record.model : found->second;
    families[result[&record]].insert(model.first);
  }
  for (auto& [record, name] : result)
    if (families[name].size() > 1) name = model_of(*record).first + "/" + name;
  return result;
}

}  // namespace xformer::reporting
