#include "attention/shared/grid_windows.h"

#include <ATen/Functions.h>

namespace xformer::attention {

at::Tensor Grid::whole(const at::Tensor& x) const {
  return padded() == length ? x : at::constant_pad_nd(x, {0, 0, 0, padded() - length});
}

at::Tensor Grid::cells(const at::Tensor& x) const { return whole(x).unflatten(2, {rows, columns}); }

Windows one_side(Windows windows, bool behind) {
  (behind ? windows.back : windows.ahead) = -1;
  return windows;
}

}  // namespace xformer::attention
