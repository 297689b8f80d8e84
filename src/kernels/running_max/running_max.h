// Running maxima on a grid (Combiner, Ren et al. 2021, whose axial forms pool the queries and keys of a row's or
// column's cells so far): for every cell the largest, channel by channel, of the valid cells before it in its column or
// row, or of those behind it; 0 where there is none.
#pragma once

#include <torch/types.h>

namespace xformer::kernels {

struct RunningMaxOptions {
  at::Tensor valid;     // [b,R,C] bool
  bool down = true;     // over the cells of a column; else of a row
  bool behind = false;  // those behind a cell; else those before it
};

// x [b,h,R,C,d] -> the same shape. The gradient goes to the cell whose value it was, the last one on the way to the
// cell where some are equal.
[[nodiscard]] at::Tensor running_max(const at::Tensor& x, const RunningMaxOptions& options);
// The definition.
[[nodiscard]] at::Tensor running_max_reference(const at::Tensor& x, const RunningMaxOptions& options);

}  // namespace xformer::kernels
