// Rows of a head by a table of places, and the transpose of that: what tokens are read and written by where they were
// sorted, or gathered in clusters or blocks. A row is one copy, or one sum, and sums are added up in one order, where
// LibTorch's gather and scatter_add go element by element.
#pragma once

#include <torch/types.h>

namespace xformer::kernels {

// x [b,h,n,d], places int64 [b,h,m] from 0 to n - 1 -> [b,h,m,d], contiguous: x's row at each place. `some_none`:
// places may be -1, of which the row is zero.
[[nodiscard]] at::Tensor picked_rows(const at::Tensor& x, const at::Tensor& places, bool some_none = false);
[[nodiscard]] at::Tensor picked_rows_reference(const at::Tensor& x, const at::Tensor& places, bool some_none);

// x [b,h,m,d], places likewise, none -1 -> [b,h,n,d], contiguous: at each place the sum of the rows that go there,
// added up in their order. Each of the two is the other's gradient. Of bf16 the sums are float until they are done.
[[nodiscard]] at::Tensor summed_rows(const at::Tensor& x, const at::Tensor& places, int64_t n);
[[nodiscard]] at::Tensor summed_rows_reference(const at::Tensor& x, const at::Tensor& places, int64_t n);

}  // namespace xformer::kernels
