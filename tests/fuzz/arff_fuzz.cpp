// libFuzzer target: any bytes either give a set of time series or an xformer::Error, and a set that ARFF can express is
// written as ARFF, padded to one length, and read back unchanged.
#include <algorithm>

#include "series_fuzz.h"

namespace {

std::string in_quotes(const std::string& label) {
  std::string text = "'";
  for (const char letter : label) {
    if (letter == '\'' || letter == '"' || letter == '\\') text += '\\';
    text += letter;
  }
  return text + "'";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto set = series_fuzz::try_read(std::string(reinterpret_cast<const char*>(data), size));
  if (!set) return 0;
  size_t steps = 0;
  for (const auto& series : set->cases) steps = std::max(steps, series.dimensions.front().size());
  std::string text = "@relation fuzzed\n@attribute r relational\n";
  for (size_t step = 0; step < steps; ++step) text += "@attribute a numeric\n";
  text += "@end r\n@attribute c {";
  for (const std::string& label : set->labels) text += (&label == &set->labels.front() ? "" : ",") + in_quotes(label);
  text += "}\n@data\n";
  for (const auto& series : set->cases) {
    const size_t length = series.dimensions.front().size();
    bool tail = false;  // whether the last step has a value: without one it would be padding
    std::string cells;
    for (const auto& values : series.dimensions) {
      if (values.size() != length) return 0;
      tail = tail || !std::isnan(values.back());
      for (size_t i = 0; i < steps; ++i)
        cells += (i == 0 ? "" : ",") + (i < length ? series_fuzz::written(values[i]) : "?");
      if (&values != &series.dimensions.back()) cells += "\\n";
    }
    if (!tail) return 0;
    text += "'" + cells + "'," + in_quotes(set->labels[static_cast<size_t>(series.label)]) + "\n";
  }
  series_fuzz::expect_same(*set, text);
  return 0;
}
