// A number that says how good a model is, with all that is needed to compare and to show it.
#pragma once

#include <string>

namespace xformer {

struct MetricSpec {
  std::string name;   // key of records and logs: "accuracy"
  std::string title;  // over columns and axes: "RMSE"
  std::string unit;   // "%": the value is a share, shown times 100; "": of the data itself
  bool higher_is_better = true;
  int decimals = 2;  // shown, in that unit

  [[nodiscard]] double shown(double value) const { return unit == "%" ? 100 * value : value; }
  [[nodiscard]] std::string text(double value) const;  // "81.25": in the unit, without it
  [[nodiscard]] std::string heading() const;           // "accuracy, %", "RMSE"
  bool operator==(const MetricSpec&) const = default;
};

struct Metric {
  MetricSpec spec;
  double value = 0;
  [[nodiscard]] bool better_than(double other) const { return spec.higher_is_better ? value > other : value < other; }
};

// Of several kinds of task, and of records written before metrics told these facts themselves.
[[nodiscard]] MetricSpec accuracy_metric();
[[nodiscard]] MetricSpec top5_metric();
[[nodiscard]] MetricSpec rmse_metric();

}  // namespace xformer
