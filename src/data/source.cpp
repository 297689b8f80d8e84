#include "data/source.h"

#include <algorithm>

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

int64_t example_length(const Example& example, const DataShape& shape) {
  if (shape.vocabulary == 0) return static_cast<int64_t>(example.values.size()) / shape.width;
  return static_cast<int64_t>(std::max(example.ids[0].size(), example.ids[1].size()));
}

void require_folder(const std::string& dataset, const std::string& expected, const DataLocation& location) {
  XF_CHECK(!location.folder.empty(), DataError,
           "{} needs its files: --data DIR (or $XFORMER_DATA/{}) with {}; `xformer describe {}` says where they come "
           "from",
           dataset, dataset, expected, dataset);
}

}  // namespace xformer::data
