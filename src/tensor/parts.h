// Parts of a tensor, and zeros behind it. Where nothing is cut or added, it is the tensor itself: narrow() and
// constant_pad_nd() would copy it all the same, the first in the backward pass, the second in both.
#pragma once

#include <ATen/Functions.h>
#include <torch/types.h>

#include <vector>

namespace xformer {

// Entries first .. first + count - 1 of x along `dim`.
[[nodiscard]] inline at::Tensor part_of(const at::Tensor& x, int64_t dim, int64_t first, int64_t count) {
  return first == 0 && count == x.size(dim) ? x : x.narrow(dim, first, count);
}

// x with so many zeros (false) behind its last entry along `dim`.
[[nodiscard]] inline at::Tensor with_zeros_behind(const at::Tensor& x, int64_t dim, int64_t count) {
  if (count == 0) return x;
  std::vector<int64_t> pads(static_cast<size_t>(2 * (dim < 0 ? -dim : x.dim() - dim)), 0);  // of the last one first
  pads.back() = count;
  return at::constant_pad_nd(x, pads);
}

}  // namespace xformer
