// What records say of runs beside their scores: how fast, how large, what it cost. Tables show one for the score.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/run_record.h"

namespace xformer::reporting {

struct Quantity {
  MetricSpec metric;                                  // its name is what --metric calls it
  std::optional<double> (*of)(const RunRecord& run);  // in the metric's unit; none where nobody measured it
  bool exact = false;                                 // counted, not measured: no seed changes it, no test tells more
  bool of_machine = false;                            // another kind of machine gives another: no mean is over several
  [[nodiscard]] bool has_mean_over(const std::vector<const RunRecord*>& runs) const;
};

// speed (examples/s), memory (MB), parameters, flops (GFLOP of an example, forwards), time (min of training and
// evaluation), energy (kJ), input (ms that making a batch takes, beside the steps or not), train_loss (of the last
// line of the log).
[[nodiscard]] const std::vector<Quantity>& quantities();
// Of a quantity by its name, or of a metric that a run's test has or would have.
[[nodiscard]] std::optional<MetricSpec> metric_of(const RunRecord& run, const std::string& name);
// What a run says under such a name, as it is shown.
[[nodiscard]] std::optional<Metric> value_of(const RunRecord& run, const std::string& name);
// What runs ran on, as far as they say: GPUs by their names, "CPU".
[[nodiscard]] std::set<std::string> machines_of(const std::vector<const RunRecord*>& runs);
// nullptr where there is none of the name.
[[nodiscard]] const Quantity* quantity_named(const std::string& name);
// UserError with the names there are.
[[nodiscard]] const Quantity& find_quantity(const std::string& name);

}  // namespace xformer::reporting
