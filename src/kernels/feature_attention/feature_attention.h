// Kernel attention by features, in time and memory linear in the length (Katharopoulos et al. 2020, equations 4 to 7):
//   out_i = phi(q_i)^T S / (phi(q_i)^T z + epsilon),   S = sum_j phi(k_j) v_j^T,   z = sum_j phi(k_j)
// over valid keys j (causal: j <= i). The CPU kernels make features a tile of rows at a time: no tensor [n,f] of them
// exists, and the backward pass makes them again. Padding behind the last valid key or query is skipped, not computed.
#pragma once

#include <torch/types.h>

#include "kernels/feature_attention/feature_map.h"
#include "tensor/sequence_mask.h"

namespace xformer::kernels {

// y = omega x', x' = scale x.
struct FeatureAttentionOptions {
  FeatureMap map = FeatureMap::kElu;
  // [f,d], one feature a row, without a gradient; float where q is bf16; undefined: y = x, f = d.
  at::Tensor omega = {};
  double scale = 1;  // read with omega only
  double floor = 0;
  double epsilon = 0;
  double divisor = 0;      // where positive, outputs are divided by it and not by the row's sum
  SequenceMask mask = {};  // of the keys
  // [b,n] bool: other rows of the output are zero, without a gradient; undefined: all are valid.
  at::Tensor query_valid = {};
};

// Rows of a chunk of the causal form on the CPU, whose rows and keys are multiplied with each other.
constexpr int64_t kCausalRows = 16;

// q [b,h,n,d], k [b,h,m,d], v [b,h,m,e] -> [b,h,n,e]; zero without a valid key. Strides are free; the result's memory
// is [b,n,h,e], as an output projection wants it.
[[nodiscard]] at::Tensor feature_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                           const FeatureAttentionOptions& options);

// The definition, with [b,h,n,f] features. Reports "phi_q", "phi_k" (kSoftmax: "phi_k_peaks", without the floor) and
// the "denominator".
[[nodiscard]] at::Tensor feature_attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                     const FeatureAttentionOptions& options);

}  // namespace xformer::kernels
