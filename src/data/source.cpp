#include "data/source.h"

#include "core/error.h"
#include "core/names.h"

namespace xformer::data {

std::string split_name(Split split) {
  switch (split) {
    case Split::kTrain:
      return "train";
    case Split::kDev:
      return "dev";
    case Split::kTest:
      return "test";
  }
  throw InternalError("a split without a name");
}

Split parse_split(const std::string& name) {
  const std::string wanted = canonical_name(name);
  if (wanted == "val" || wanted == "valid" || wanted == "validation") return Split::kDev;
  for (const Split split : kAllSplits)
    if (split_name(split) == wanted) return split;
  throw UserError(unknown_name_message("split", name, {"train", "dev", "test"}));
}

}  // namespace xformer::data
