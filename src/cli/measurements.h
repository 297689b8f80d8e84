// Speed, memory and accuracy of models as commands take them: from records of runs, folders of them, or tables.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/files.h"
#include "reporting/smat.h"

namespace xformer::cli {

// What was measured of one model, by seed; a table has one row and no seeds. Memory in MB, accuracy in %.
struct Measured {
  std::string model;
  std::map<int64_t, reporting::SmatInput> seeds;
  [[nodiscard]] reporting::SmatInput mean() const;
};

struct Measurements {
  std::vector<Measured> models;
  std::string task;               // of records
  std::set<std::string> sources;  // where the numbers are from
};

// A table is CSV with the columns model, examples_per_s, peak_memory_mb and accuracy. UserErrors: records of two tasks,
// a model's seed twice; DataErrors: no record, a record without accuracy or speed, a column missing or no number.
[[nodiscard]] Measurements read_measurements(const std::vector<std::string>& places);

// Replaces all accuracies by those of a CSV with the columns model and accuracy.
void take_accuracies(const Path& path, Measurements& into);

}  // namespace xformer::cli
