// Images as sequences to be predicted (tasks-more 8): the bytes of an image in colour, row by row, red, green and blue
// of a pixel side by side. A place's label is its byte, its id the byte before it, counted from 1; id 0 stands in front
// of the first.
#pragma once

#include <memory>

#include "data/source.h"

namespace xformer::data {

// Of images of so many pixels each way.
[[nodiscard]] DataShape density_shape(int64_t side);
// Their bytes as they lie in a cache, without answers of their own.
[[nodiscard]] DataShape packed_density_shape(int64_t side);
// The first in terms of the second.
[[nodiscard]] std::unique_ptr<DataSource> density_source(std::unique_ptr<DataSource> packed, int64_t side);

// An example as an image, and as its brightness in letters.
[[nodiscard]] readers::Image density_picture(const Example& example, const DataInfo& info);
[[nodiscard]] std::string density_shown(const Example& example, const DataInfo& info);

}  // namespace xformer::data
