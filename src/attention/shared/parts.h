// Sequences cut into parts that attend as if each were a sample of the batch.
#pragma once

#include "kernels/dropout/dropout.h"

namespace xformer::attention {

// The place of a call whose rows are `parts` of each sample, side by side: draws are numbered over the whole batch also
// where a micro-batch begins in its middle.
[[nodiscard]] inline kernels::DropoutPlace place_of_parts(kernels::DropoutPlace place, int64_t parts) {
  if (place.p == 0 || parts == 1) return place;
  place.state = place.state.clone();
  place.state.select(0, 2).mul_(parts);  // the first row of the micro-batch
  return place;
}

}  // namespace xformer::attention
