// Printed values that tables set beside ours: what a published.json holds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/json.h"
#include "core/metric.h"

namespace xformer::reporting {

// Of this "task" an entry is the mean over the tasks of its row.
inline constexpr const char* kAverage = "average";

struct PublishedValue {
  std::string task, model, source;
  double value = 0;                      // as it is shown; NaN where a text stands in its place
  Json options = Json::object();         // plan keys that a run must have for it; mostly none
  std::string metric = {};               // its name; "": the one that the task is judged by
  std::string text = {};                 // in place of a number: "FAIL"
  std::optional<double> deviation = {};  // the publication's own
  bool digitised = false;                // read off a figure
  std::string qualifier = {};            // "up to", "about"
  std::string remark = {};               // under which condition, or from where: "quoted from LRA"
  int64_t row = 0;                       // of the printed table, where several have the same settings; 0: not said
  std::string unit = {};                 // where its metric is no known one
  std::string deviation_source = {};     // where the deviation is printed, if not beside the value
};

// JSON: [{"task", "model", "metric", "value", "source"}, ...], without those of another "experiment" when one is named
// here. Dotted keys are options, "length" is data.length; "std", "std_source", "digitised", "qualifier", "condition",
// "size", "quoted_from", "row" and "unit" as above; "value" may be null beside a "text". Other keys are facts for
// people. DataErrors name the entry.
[[nodiscard]] std::vector<PublishedValue> read_published(const Path& path, const std::string& experiment = "");

// "63.50": with at least so many decimals, and with all that were printed.
[[nodiscard]] std::string printed(double value, int decimals);
// The same of a published value, or its text.
[[nodiscard]] std::string printed(const PublishedValue& value, int decimals);
// The publication, the row where it says one, and where the deviation is from if from elsewhere.
[[nodiscard]] std::string place_text(const PublishedValue& value);

// What a published value is judged by where no record of its task says: its metric's name tells. A name that is not
// known is its own title, larger is better, and the unit is the value's.
[[nodiscard]] MetricSpec published_metric(const PublishedValue& value);

}  // namespace xformer::reporting
