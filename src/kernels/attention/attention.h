// Softmax attention with dropout of its weights, without the weights in memory:
//   P = softmax(scale q k^T) over valid (and, if causal, not later) keys,   out = drop(P) v
// The forward pass keeps one number a row, the log of its sum; the backward pass makes the weights again from it (Dao,
// Fu, Ermon, Rudra, Re, "FlashAttention", 2022, algorithms 1 and 4). The same form serves few keys (Linformer,
// Nystromformer) and pooled ones (mrs-). Padding behind the last valid key or query is skipped, not computed.
#pragma once

#include "kernels/dropout/place.h"
#include "tensor/sequence_mask.h"

namespace xformer::kernels {

struct AttentionOptions {
  double scale = 1;
  SequenceMask mask;  // of the keys
  // [b, n] bool: other rows of the output are zero, without a gradient; undefined: all are valid.
  at::Tensor query_valid;
  // Element e of the weights [b, h, n, m] is dropped as kernels::dropout would drop it.
  DropoutPlace dropout;
};

// q [b,h,n,d], k [b,h,m,d], v [b,h,m,e] -> [b,h,n,e]. A row without any allowed key is zero, with zero gradient.
// Strides are free; the result's memory is [b,n,h,e], as an output projection wants it.
[[nodiscard]] at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const AttentionOptions& options);

// Whether kernels take such operands now, so that the weights stay out of memory; else the definition runs.
[[nodiscard]] bool attention_runs_fused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// Pairs of a query and a key that the CPU's forward pass multiplies for each head when all are valid: n m, or, causal,
// whole tiles up to the diagonal.
[[nodiscard]] int64_t attention_pairs(int64_t n, int64_t m, bool causal);

// The definition, with [b,h,n,m] weights; reports them as probe("weights").
[[nodiscard]] at::Tensor attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const AttentionOptions& options);

}  // namespace xformer::kernels
