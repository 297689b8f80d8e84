// A bench report beside published measurements: ratios, which other machines can be compared in, to softmax attention
// or of mrs-X to X.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/json.h"
#include "reporting/table.h"

namespace xformer::reporting {

struct BenchRow {
  std::string label;
  int64_t length = 0, batch = 0;
  std::string status;  // "ok", or why there are no numbers
  // Times softmax's: how much faster, and how many times less memory.
  std::optional<double> speed, saving, published_speed, published_saving;
};

// Rows of a report of `xformer bench --json`, beside the values of `experiment` in a file of published ones: those of
// the metrics train_time_per_step, steps_per_second and speed, peak_memory and memory_per_device, of the same model,
// options and length; beside none where `published` is empty. DataError for a file that is not what it should be.
[[nodiscard]] std::vector<BenchRow> compare_bench(const Json& report, const Path& published,
                                                  const std::string& experiment);
[[nodiscard]] Table shown(const std::vector<BenchRow>& rows);

// mrs-X beside X at the same sizes (MrsFormer, Figure 5).
struct ScalesRow {
  std::string model;  // "mrs-fmm"
  std::optional<int64_t> width;
  int64_t length = 0, batch = 0;
  std::optional<double> operations, memory;  // as shares of X's; none where one of both did not fit
};
[[nodiscard]] std::vector<ScalesRow> compare_scales(const Json& report);
[[nodiscard]] Table shown(const std::vector<ScalesRow>& rows);

}  // namespace xformer::reporting
