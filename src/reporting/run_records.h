// Records of runs (docs/record.md), as far as tables and scores need them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/json.h"

namespace xformer::reporting {

struct DevPoint {
  int64_t step = 0;
  double score = 0;
};

struct RunRecord {
  Path path;
  std::string task, model, protocol, status, message, experiment;
  int64_t seed = 0;
  Json plan = Json::object();
  // Of the final test: accuracy from 0 to 1, or RMSE in the data's unit; none where it was not reached.
  std::optional<double> score, chance;  // chance: the constant answer's
  bool rmse = false;
  int64_t examples = 0;  // of the test
  std::vector<DevPoint> dev;
  int64_t parameters = 0;
  double examples_per_s = 0, peak_device_bytes = 0;
  std::string commit, data_sha256, command;
};

// Of files and of folders with everything below them, in the order of their paths. JSON in a folder that is no record
// is passed over. DataErrors: a path that is not there, a file that is no record, a folder without one.
[[nodiscard]] std::vector<RunRecord> read_run_records(const std::vector<std::string>& places);

}  // namespace xformer::reporting
