// A sequence as a grid of places, row by row, for attentions made for images.
#pragma once

#include <algorithm>
#include <cmath>

#include "attention/core.h"
#include "core/error.h"

namespace xformer::attention {

// The option `columns`.
inline constexpr const char* kColumnsHelp =
    "columns of the grid that the sequence is, row by row; 0: those of the image, whose colours are columns of their "
    "own where they have places, else the root of the longest length, rounded up";

// Fixed when the attention is built, so that appended padding moves nothing. Pinned tokens are no places.
[[nodiscard]] inline int64_t grid_columns(int64_t option, const BuildContext& context) {
  if (option > 0) return option;
  if (context.grid > 0) return context.grid;
  XF_ASSERT(context.max_len > 0, "a grid needs the longest length when it is built");
  const auto places = static_cast<double>(std::max<int64_t>(1, context.max_len - context.pinned_tokens));
  return static_cast<int64_t>(std::ceil(std::sqrt(places)));
}

}  // namespace xformer::attention
