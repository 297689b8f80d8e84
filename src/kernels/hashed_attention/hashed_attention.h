// Softmax attention among tokens that a hash puts side by side (Kitaev, Kaiser, Levskaya, "Reformer: The Efficient
// Transformer", ICLR 2020, section 2 and appendix A): time n r c, no weights kept.
//   k_j = q_j / sqrt(|q_j|^2 + 1e-6 d)                               one projection gives queries and keys
//   round r: tokens sorted by (bucket, position), cut into chunks of c; a token looks at its chunk and the one before
//   out_i = sum of drop(w_ij) v_j over all that i looks at in all rounds, w = softmax of q_i k_j over the same
// Chunks of all rounds lie one behind the other and the one before the first is the last. A token's logit with itself
// is -1e5: it reads itself only where it sees no other. A key found several times counts several times.
#pragma once

#include <ATen/Functions.h>

#include <vector>

#include "kernels/dropout/place.h"

namespace xformer::kernels {

struct HashedAttentionOptions {
  int64_t chunk = 64;
  bool dup_correct = false;  // a key's weight is divided by the number of times that it is found; not fused
  at::Tensor valid;          // [b,n] bool, of keys and of rows; undefined: all are
  // Element e of the weights [b,h,r slots/c,c,2c] is dropped as kernels::dropout would drop it.
  DropoutPlace dropout;
};

// n rounded up to whole chunks.
[[nodiscard]] constexpr int64_t hashed_slots(int64_t n, int64_t chunk) { return (n + chunk - 1) / chunk * chunk; }

// q [b,h,n,d], v [b,h,n,e], buckets [b,h,r,slots] int64, from 0 (padding and the slots behind the last token have the
// highest) -> [b,h,n,e], on the CPU in memory [b,n,h,e]. Undefined buckets: all n tokens look at all. Rows that are not
// valid are zero, with zero gradient. FLOPs on the CPU: 8 h r slots c d a sample.
[[nodiscard]] at::Tensor hashed_attention(const at::Tensor& q, const at::Tensor& v, const at::Tensor& buckets,
                                          const HashedAttentionOptions& options);
// The definition; reports probe("k"), "tokens", "weights", "weights_sum" and "log_sum".
[[nodiscard]] at::Tensor hashed_attention_reference(const at::Tensor& q, const at::Tensor& v, const at::Tensor& buckets,
                                                    const HashedAttentionOptions& options);

// q [b,h,n,d] and random directions [h,d,r,columns] of the type that it is computed with -> buckets [b,h,r,slots]. Each
// factor takes half as many columns of x = q directions: its digit is argmax [x; -x]. Factor f's digit counts as many
// times as the factors before it multiply to. Without gradient.
[[nodiscard]] at::Tensor hash_buckets(const at::Tensor& q, const at::Tensor& directions,
                                      const std::vector<int64_t>& factors, const HashedAttentionOptions& options);
[[nodiscard]] at::Tensor hash_buckets_reference(const at::Tensor& q, const at::Tensor& directions,
                                                const std::vector<int64_t>& factors,
                                                const HashedAttentionOptions& options);
// Queries along the directions, x [h,b,n,r,columns] above.
[[nodiscard]] inline at::Tensor along_directions(const at::Tensor& q, const at::Tensor& directions) {
  const int64_t b = q.size(0), h = q.size(1), n = q.size(2), d = q.size(3);
  // A product of more dimensions would copy the directions for each sample.
  const at::Tensor rows = q.detach().to(directions.scalar_type()).transpose(0, 1).reshape({h, b * n, d});
  return at::bmm(rows, directions.flatten(2)).view({h, b, n, directions.size(2), directions.size(3)});
}

inline constexpr double kKeyEpsilon = 1e-6;    // of the mean square of a key
inline constexpr double kSelfLogit = -1e5;     // of a token with itself
inline constexpr double kLowestLogit = -1e30;  // stands for the largest logit where there is none

}  // namespace xformer::kernels
