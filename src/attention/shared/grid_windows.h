// The windows over rows and columns of a grid of places. The last row may have fewer.
#pragma once

#include <algorithm>

#include "attention/shared/windows.h"

namespace xformer::attention {

struct Grid {
  Grid(int64_t n, int64_t wanted) : length(n), columns(std::min(wanted, n)), rows((n + columns - 1) / columns) {}

  int64_t length, columns, rows;
  [[nodiscard]] int64_t padded() const { return rows * columns; }

  [[nodiscard]] at::Tensor whole(const at::Tensor& x) const;  // [b,h,n,d] -> [b,h,R C,d], zeros in the padding
  [[nodiscard]] at::Tensor cells(const at::Tensor& x) const;  // [b,h,n,d] -> [b,h,R,C,d]
  // Each place of n sees its row, or its column.
  [[nodiscard]] Windows row(int64_t n, bool causal) const { return Windows::own_block(n, columns, causal); }
  [[nodiscard]] Windows column(int64_t n, bool causal) const { return Windows::own_block(n, rows, causal, columns); }
};

// Of windows around each row the keys before it, or those behind it, without its own. The definition needs a mask of
// valid tokens to make rows zero that see none.
[[nodiscard]] Windows one_side(Windows windows, bool behind);

}  // namespace xformer::attention
