// A part of a dataset, for a quick look. What such a run comes to is not comparable with others, and its record says
// so.
#pragma once

#include "data/source.h"

namespace xformer::data {

// "train=0.1,dev=200": shares (with a point, or in %) or numbers of examples, by split. "" limits nothing. UserError
// that names the part that is wrong.
[[nodiscard]] Rule limit_rule();
// Whether it says anything of this split.
[[nodiscard]] bool is_limited(const std::string& limit, Split split);
// Every split with as many examples as the limit says, at least one, evenly out of all: files are often sorted by
// class. Of a split that is read in lanes (batches/lane_order.h) the first.
[[nodiscard]] std::unique_ptr<DataSource> limited(std::unique_ptr<DataSource> source, const std::string& limit);

}  // namespace xformer::data
