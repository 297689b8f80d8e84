// Groups of heads as the dispatcher takes them: lists of numbers.
#pragma once

#include "kernels/pooling/pooling.h"

namespace xformer::kernels {

struct GroupLists {
  std::vector<int64_t> scales, sizes, heads;  // of each group its scale and how many heads; all their heads

  [[nodiscard]] static GroupLists of(const std::vector<HeadGroup>& groups) {
    GroupLists lists;
    for (const HeadGroup& group : groups) {
      lists.scales.push_back(group.scale);
      lists.sizes.push_back(static_cast<int64_t>(group.heads.size()));
      lists.heads.insert(lists.heads.end(), group.heads.begin(), group.heads.end());
    }
    return lists;
  }
  [[nodiscard]] std::vector<HeadGroup> groups() const {
    std::vector<HeadGroup> result;
    auto next = heads.begin();
    for (size_t i = 0; i < scales.size(); next += sizes[i++]) result.push_back({scales[i], {next, next + sizes[i]}});
    return result;
  }
};

}  // namespace xformer::kernels
