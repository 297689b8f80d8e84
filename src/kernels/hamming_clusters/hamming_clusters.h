// K-means of bit strings under the Hamming distance (Vyas, Katharopoulos, Fleuret, "Fast Transformers with Clustered
// Attention", NeurIPS 2020, section 3.1), for each sample and head by itself and without a gradient:
//   assign every valid token to the nearest centroid, the first of equally near ones; a centroid's bit becomes what
//   most of its members have, 0 where they are even; and so on, `rounds` assignments in all
// A centroid without members stays as it is. The first centroids are the codes of the valid tokens of rank
// floor((c + 1/2) n_b / C). A sample of at most C valid tokens has one cluster for each, in their order.
#pragma once

#include <torch/types.h>

namespace xformer::kernels {

struct HammingClusterOptions {
  int64_t clusters = 1;  // C
  int64_t rounds = 1;
  int64_t bits = 63;  // of a code, the lowest ones
  at::Tensor valid;   // [b,n] bool; undefined: all
  // int64 0, 1, .. of the clusters and of the bits, whichever are more, on the codes' device, from one that keeps them;
  // undefined: the definition makes them.
  at::Tensor numbers = {};
};

// codes int64 [b,h,n] -> int64 [b,h,n]: cluster 0 .. C - 1 of each token, -1 where it is not valid.
[[nodiscard]] at::Tensor hamming_clusters(const at::Tensor& codes, const HammingClusterOptions& options);

// The definition, with products of bits as +1 and -1 in place of distances.
[[nodiscard]] at::Tensor hamming_clusters_reference(const at::Tensor& codes, const HammingClusterOptions& options);

}  // namespace xformer::kernels
