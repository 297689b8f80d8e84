// What tokens take from the segments of the one resolution that a router sends them to ("Adaptive Multi-Resolution
// Attention with Linear Complexity", Zhang, Ma, Seidl, Tresp, 2021, equations 7 to 9), by features: with the map W_h
// and, for each sub-head s of width w, the table T_hs of resolution h, and h = h(i),
//   y = phi(W_h q_i) [d], sub-heads side by side,   (a, c) = y_s T_hs,   o_is = gate_i a / (c + epsilon)
// where the last column of a table is what the division is by. Tokens are taken together by resolution, so that each is
// multiplied by one map and one table, and features are made again for the backward pass; in plain operations every
// token has features of all resolutions, zero outside its own.
#pragma once

#include <torch/types.h>

#include "kernels/feature_attention/feature_map.h"

namespace xformer::kernels {

struct RoutedFeaturesOptions {
  FeatureMap map = FeatureMap::kRelu;  // phi: that or kElu, without a floor
  double epsilon = 0;                  // of the denominator
};

// q [b,n,d]; maps [H,d,d], [out, in], or undefined: y = phi(q_i); tables [b,S,H w,w+1] of w = d / S; chosen [b,n,H]
// bool: the token's resolution, one at most, and a token without one is zero; gate [b,n] or undefined: 1.
// -> [b,n,d]. FLOPs on the CPU: 2 (d^2 + d (w + 1)) a token that has one.
[[nodiscard]] at::Tensor routed_features(const at::Tensor& q, const at::Tensor& maps, const at::Tensor& tables,
                                         const at::Tensor& chosen, const at::Tensor& gate,
                                         const RoutedFeaturesOptions& options);

[[nodiscard]] at::Tensor routed_features_reference(const at::Tensor& q, const at::Tensor& maps,
                                                   const at::Tensor& tables, const at::Tensor& chosen,
                                                   const at::Tensor& gate, const RoutedFeaturesOptions& options);

}  // namespace xformer::kernels
