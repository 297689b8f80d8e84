#include "data/text/stream_options.h"

namespace xformer::data {

Schema<StreamOptions> stream_schema(const std::string& symbols) {
  return Schema<StreamOptions>()
      .add(&StreamOptions::length, "length", symbols + " that a model reads at once (N)", between(2, 1e6))
      .add(&StreamOptions::scoring, "scoring",
           "which context dev and test " + symbols +
               " are scored with: window (windows side by side, what stands before in the window), half (half a window "
               "at least; the second half of each window is scored), stride (N less data.stride at least; its last "
               "data.stride " +
               symbols +
               " are), memory (windows side by side, each after the one before it: what a model remembers of earlier "
               "ones too)",
           one_of({"window", "half", "stride", "memory"}))
      .add(&StreamOptions::stride, "stride", symbols + " scored of each window where scoring=stride; else 0",
           at_least(0))
      .add(&StreamOptions::windows, "windows",
           "training windows: consecutive (side by side, each once an epoch, shuffled), random (as many, each at a "
           "place drawn anew) or lanes (each row of a batch reads a part of its own, and goes on where it ended in the "
           "batch before: for models that remember)",
           one_of({"consecutive", "random", "lanes"}));
}

void check_stream(const StreamOptions& options) {
  const bool stride = options.scoring == "stride";
  XF_CHECK(stride ? options.stride >= 1 && options.stride <= options.length : options.stride == 0, UserError,
           "data.stride: expected {}, got {}",
           stride ? fmt::format("1 to data.length = {}", options.length) : "0 where data.scoring is not stride",
           options.stride);
  XF_CHECK(options.scoring != "half" || options.length % 2 == 0, UserError,
           "data.length: half of a window is scored; expected an even number, got {}", options.length);
}

int64_t scored_of(const StreamOptions& options) {
  return options.scoring == "half" ? options.length / 2 : options.scoring == "stride" ? options.stride : options.length;
}

std::string scoring_name(const StreamOptions& options) {
  return options.scoring == "stride" ? fmt::format("stride {}", options.stride) : options.scoring;
}

StreamWindows windows_of(const StreamOptions& options, int64_t size, bool train) {
  return {size, options.length, train ? options.length : scored_of(options)};
}

}  // namespace xformer::data
