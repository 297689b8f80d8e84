// How a long stream of symbols or pieces is cut into examples: options that all such tasks share.
#pragma once

#include "core/schema.h"
#include "data/text/stream_windows.h"

namespace xformer::data {

struct StreamOptions {
  int64_t length = 1024, stride = 0;
  std::string scoring = "window", windows = "consecutive";
};

// `symbols`: what a place is, such as "symbols".
[[nodiscard]] Schema<StreamOptions> stream_schema(const std::string& symbols);
// UserErrors of data.stride and data.length.
void check_stream(const StreamOptions& options);
// Places that count of each window of dev and test.
[[nodiscard]] int64_t scored_of(const StreamOptions& options);
// The protocol as metrics' titles have it: "stride 32".
[[nodiscard]] std::string scoring_name(const StreamOptions& options);
// Of a split of so many places: of train each counts in one window alone.
[[nodiscard]] StreamWindows windows_of(const StreamOptions& options, int64_t size, bool train);

}  // namespace xformer::data
