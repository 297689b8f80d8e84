// libFuzzer target: any bytes either give a set of time series or an xformer::Error, and a set that .ts can express is
// written as .ts and read back unchanged.
#include "core/text.h"
#include "series_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto set = series_fuzz::try_read(std::string(reinterpret_cast<const char*>(data), size));
  if (!set) return 0;
  std::string text = "@timeStamps false\n@classLabel true";
  for (const std::string& label : set->labels) {
    // What an ARFF label may be and a .ts label not.
    if (label.find_first_of(" \t:") != std::string::npos || xformer::trim(label) != label) return 0;
    text += " " + label;
  }
  text += fmt::format("\n@dimensions {}\n@data\n", set->cases.front().dimensions.size());
  for (const auto& series : set->cases) {
    for (const auto& values : series.dimensions)
      for (size_t i = 0; i < values.size(); ++i)
        text += series_fuzz::written(values[i]) + (i + 1 < values.size() ? "," : ":");
    text += set->labels[static_cast<size_t>(series.label)] + "\n";
  }
  series_fuzz::expect_same(*set, text);
  return 0;
}
