// A bench report beside published measurements: ratios to softmax attention, which other machines can be compared in.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/json.h"

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
// options and length. DataError for a file that is not what it should be.
[[nodiscard]] std::vector<BenchRow> compare_bench(const Json& report, const Path& published,
                                                  const std::string& experiment);
[[nodiscard]] std::string as_markdown(const std::vector<BenchRow>& rows);

}  // namespace xformer::reporting
