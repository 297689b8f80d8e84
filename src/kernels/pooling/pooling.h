// Tokens pooled in groups and groups repeated to tokens, for heads of several scales at once (MrsFormer;
// Nystromformer's landmarks): pool_tokens and repeat_tokens of tensor/sequence_mask.h in one pass each way.
#pragma once

#include <torch/types.h>

#include <vector>

#include "tensor/sequence_mask.h"

namespace xformer::kernels {

// The heads that are pooled by one scale. Every head belongs to one group.
struct HeadGroup {
  int64_t scale = 1;
  std::vector<int64_t> heads;
};

// x [b,h,n,d] -> for each group its heads' means over `scale` tokens [b, heads, pooled_len, d].
[[nodiscard]] std::vector<at::Tensor> pool_heads(const at::Tensor& x, const SequenceMask& mask,
                                                 const std::vector<HeadGroup>& groups, int64_t pinned = 0);
[[nodiscard]] std::vector<at::Tensor> pool_heads_reference(const at::Tensor& x, const SequenceMask& mask,
                                                           const std::vector<HeadGroup>& groups, int64_t pinned = 0);

// Of one scale for all heads, and x as its caller is to go on with it, who gets both gradients added in one pass.
struct PooledBeside {
  at::Tensor pooled, x;
};
[[nodiscard]] PooledBeside pool_beside(const at::Tensor& x, const SequenceMask& mask, int64_t scale);

// The way back: rows repeated `scale` times and cut to n, all heads in their places: [b,h,n,d] over memory [b,n,h,d].
[[nodiscard]] at::Tensor repeat_heads(const std::vector<at::Tensor>& pooled, int64_t n,
                                      const std::vector<HeadGroup>& groups, int64_t pinned = 0);
[[nodiscard]] at::Tensor repeat_heads_reference(const std::vector<at::Tensor>& pooled, int64_t n,
                                                const std::vector<HeadGroup>& groups, int64_t pinned = 0);

}  // namespace xformer::kernels
