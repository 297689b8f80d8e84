// Sparse factors whose links are the same steps from every row, around the end (Paramixer, Yu et al. 2022: chord and
// dilated links): weighted sums of rolled rows, with nothing gathered.
//   y[b,i] = sum_p w[b,i,p] v[b,(i + offset_p) mod n]  (+ v[b,i])
#pragma once

#include <torch/types.h>

#include <vector>

namespace xformer::kernels {

struct RolledRowsOptions {
  std::vector<int64_t> offsets;  // any whole numbers; those that meet at one row add up
  bool residual = true;          // + v[b,i]
  at::Tensor valid = {};         // [b,n] bool: other rows of y are zero, with zero gradient; undefined: all are
};

// v [b,n,e], w [b,n,offsets] -> [b,n,e]. FLOPs on the CPU: 2 e offsets for each valid row.
[[nodiscard]] at::Tensor rolled_rows(const at::Tensor& v, const at::Tensor& w, const RolledRowsOptions& options);
// The definition: one roll, product and sum a link.
[[nodiscard]] at::Tensor rolled_rows_reference(const at::Tensor& v, const at::Tensor& w,
                                               const RolledRowsOptions& options);

}  // namespace xformer::kernels
