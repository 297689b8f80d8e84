// Rows of a head by a table of places, and the transpose of that: what tokens are read and written by where they were
// sorted, or gathered in clusters or blocks. A row is one copy, or one sum, and sums are added up in one order, where
// LibTorch's gather and scatter_add go element by element.
#pragma once

#include <torch/types.h>

namespace xformer::kernels {

// x [b,h,n,d], places int64 [b,h,m] below n -> [b,h,m,d], contiguous: x's row at each place; zeros where that is
// negative.
[[nodiscard]] at::Tensor picked_rows(const at::Tensor& x, const at::Tensor& places);
[[nodiscard]] at::Tensor picked_rows_reference(const at::Tensor& x, const at::Tensor& places);

// x [b,h,m,d], places int64 [b,h,m] below n -> [b,h,n,d], contiguous: at each place the sum of the rows that go there,
// added up in their order; those with a negative one go nowhere. Each of the two is the other's gradient. Of bf16 the
// sums are float until they are done.
[[nodiscard]] at::Tensor summed_rows(const at::Tensor& x, const at::Tensor& places, int64_t n);
[[nodiscard]] at::Tensor summed_rows_reference(const at::Tensor& x, const at::Tensor& places, int64_t n);

}  // namespace xformer::kernels
