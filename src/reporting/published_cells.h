// Where published values stand in a table of runs.
#pragma once

#include <vector>

#include "reporting/result_table.h"

namespace xformer::reporting {

// Puts each value into the cells of the runs that it is of: same task and model, the options that it names, and the
// metric of the column. `all`: one of another metric goes into a column of its own beside that, and one of no run into
// the row of its model and the column of its task, where there is one of each, else into new ones behind the others.
void place_published(ResultTable& table, const std::vector<PublishedValue>& published, bool all);

}  // namespace xformer::reporting
