// Additive attention: Bahdanau, Cho, Bengio, "Neural Machine Translation by Jointly Learning to Align and Translate",
// ICLR 2015, appendix A.1.2:
//   e_ij = w . tanh(q_i + k_j),   P = softmax_j(e),   out = drop(P) v
// over valid keys j (causal: j <= i), with one w for each head and without 1 / sqrt(d). Nothing of size [n,m,d] exists;
// kernels keep no weights either: one number a row is kept, the log of its sum, from which the backward pass makes them
// again.
#pragma once

#include "kernels/dropout/place.h"
#include "tensor/sequence_mask.h"

namespace xformer::kernels {

struct AdditiveAttentionOptions {
  SequenceMask mask;       // of the keys; causal needs as many keys as queries
  at::Tensor query_valid;  // [b,n] bool: other rows of the output are zero; undefined: all are valid
  DropoutPlace dropout;    // element e of the weights [b,h,n,m]
};

// q [b,h,n,d], k [b,h,m,d], v [b,h,m,e], w [h,d] -> [b,h,n,e]; zero without a valid key. Strides are free; the CPU's
// result lies in memory as [b,n,h,e]. w is float where q, k and v are bf16.
[[nodiscard]] at::Tensor additive_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                            const at::Tensor& w, const AdditiveAttentionOptions& options);

// The definition, with weights [b,h,n,m]; reports them as probe("weights").
[[nodiscard]] at::Tensor additive_attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                      const at::Tensor& w, const AdditiveAttentionOptions& options);

// Pairs of one head that the CPU's kernel looks at: a causal tile reads the keys up to its last row. FLOPs: 2 (d + e)
// for each of them.
[[nodiscard]] int64_t additive_attention_pairs(int64_t queries, int64_t keys, bool causal);

}  // namespace xformer::kernels
