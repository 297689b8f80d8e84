// What records say of runs beside their scores: how fast, how large, what it cost. Tables show one for the score.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/run_record.h"

namespace xformer::reporting {

struct Quantity {
  MetricSpec metric;                                  // its name is what --metric calls it
  std::optional<double> (*of)(const RunRecord& run);  // in the metric's unit; none where nobody measured it
  bool exact = false;                                 // counted, not measured: no seed changes it, no test tells more
};

// speed (examples/s), memory (MB), parameters, flops (GFLOP of an example, forwards), time (min of training and
// evaluation), energy (kJ), input (ms that making a batch takes, beside the steps or not).
[[nodiscard]] const std::vector<Quantity>& quantities();
// UserError with the names there are.
[[nodiscard]] const Quantity& find_quantity(const std::string& name);

}  // namespace xformer::reporting
