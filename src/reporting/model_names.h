// What the models of some records are called beside each other.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/run_record.h"

namespace xformer::reporting {

// By record: the name that its model was typed by, one for all records of a model, whatever each was called. Where two
// models would share a name (softmax in an encoder, softmax in a Vision Transformer), the family stands in front.
[[nodiscard]] std::map<const RunRecord*, std::string> model_names(const std::vector<RunRecord>& records);

}  // namespace xformer::reporting
