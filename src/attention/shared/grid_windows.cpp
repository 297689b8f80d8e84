#include "attention/shared/grid_windows.h"

#include <ATen/Functions.h>

#include "tensor/parts.h"

namespace xformer::attention {

at::Tensor Grid::whole(const at::Tensor& x) const { return with_zeros_behind(x, 2, padded() - length); }

at::Tensor Grid::cells(const at::Tensor& x) const { return whole(x).unflatten(2, {rows, columns}); }

Windows one_side(Windows windows, bool behind) {
  (behind ? windows.back : windows.ahead) = -1;
  return windows;
}

}  // namespace xformer::attention
