// Where the largest numbers of each row are: the members of a cluster (Routing Transformer, Roy et al. 2021), the keys
// of a centroid (improved clustered attention, Vyas et al. 2020).
#pragma once

#include <torch/types.h>

namespace xformer::kernels {

// x [..,n], 1 <= k <= n -> int64 [..,k], ascending: the places of the k largest numbers of each row, among equal ones
// any. A NaN is larger than all. Without a gradient. On the CPU a row is looked at once for each bit of its
// numbers at most, where a partial sort moves them about.
[[nodiscard]] at::Tensor largest_places(const at::Tensor& x, int64_t k);
// The definition.
[[nodiscard]] at::Tensor largest_places_reference(const at::Tensor& x, int64_t k);

}  // namespace xformer::kernels
