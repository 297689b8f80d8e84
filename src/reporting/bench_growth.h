// How the time and the memory of a step grow with the length, of a bench report over lengths.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "reporting/table.h"

namespace xformer::reporting {

// Exponents of the length (1: linear, 2: quadratic): slopes of the logarithms, by least squares over all lengths, and
// between the two longest, where what does not grow counts least.
struct GrowthRow {
  std::string label;
  std::string method_class = {}, causal = {}, said = {};  // of its attention; "" where the report does not tell
  int64_t batch = 0, longest = 0;
  double time = 0, memory = 0, time_at_last = 0, memory_at_last = 0;
  double step_ms = 0, peak_bytes = 0;  // at the longest
};

// Of the models of a report of `xformer bench --json` that were measured at three lengths or more of one batch, width
// and precision, in the order of its rows.
[[nodiscard]] std::vector<GrowthRow> growth_of(const Json& report);
[[nodiscard]] Table shown(const std::vector<GrowthRow>& rows);

}  // namespace xformer::reporting
