// The CPU's two passes of additive attention (additive_attention.h), for float, double and bf16; w is float where the
// others are bf16.
#pragma once

#include "kernels/additive_attention/additive_attention.h"

namespace xformer::kernels {

struct AdditiveAttentionForward {
  at::Tensor out;  // [b,h,n,e], memory [b,n,h,e]
  // [b,h,n], float where q is bf16; infinity for rows without a key and for queries that are not valid
  at::Tensor log_sum;
};

[[nodiscard]] AdditiveAttentionForward additive_attention_forward_cpu(const at::Tensor& q, const at::Tensor& k,
                                                                      const at::Tensor& v, const at::Tensor& w,
                                                                      const AdditiveAttentionOptions& options);

struct AdditiveAttentionGradients {
  at::Tensor q, k, v, w;
};

[[nodiscard]] AdditiveAttentionGradients additive_attention_backward_cpu(const at::Tensor& gradient,
                                                                         const at::Tensor& q, const at::Tensor& k,
                                                                         const at::Tensor& v, const at::Tensor& w,
                                                                         const AdditiveAttentionForward& forward,
                                                                         const AdditiveAttentionOptions& options);

// A row of numbers x and, where none of them is too large for that, e^2x: then
//   tanh(q + k) = 1 - 2 / (1 + e^2q e^2k),
// and no exponential is left to each pair.
template <class Value>
struct AdditiveRow {
  const Value *x, *powers;  // the second null: one is too large
};
// Puts e^2x in the place of x and says whether that may be taken.
[[nodiscard]] bool doubled_powers(float* x, int64_t count);
[[nodiscard]] bool doubled_powers(double* x, int64_t count);

// One query [d] against all keys, which lie as columns [d,count] whose rows are `stride` apart.

// scores[j] = sum_c w[c] tanh(q[c] + k[c][j])
void additive_scores(const AdditiveRow<float>& q, const float* w, int64_t d, const AdditiveRow<float>& k,
                     int64_t stride, int64_t count, float* scores);
void additive_scores(const AdditiveRow<double>& q, const double* w, int64_t d, const AdditiveRow<double>& k,
                     int64_t stride, int64_t count, double* scores);
// From slopes[j], the gradients of the scores: those of q and w gain their sums over j, dk [d,count] (as k) its own.
void additive_gradients(const AdditiveRow<float>& q, const float* w, int64_t d, const AdditiveRow<float>& k,
                        int64_t stride, int64_t count, const float* slopes, float* dq, float* dw, float* dk);
void additive_gradients(const AdditiveRow<double>& q, const double* w, int64_t d, const AdditiveRow<double>& k,
                        int64_t stride, int64_t count, const double* slopes, double* dq, double* dw, double* dk);

// Those of powers, where has_512() (kernels/cpu/lanes_512.h).
namespace by_512 {
void additive_scores(const float* q, const float* w, int64_t d, const float* k, int64_t stride, int64_t count,
                     float* scores);
void additive_gradients(const float* q, const float* w, int64_t d, const float* k, int64_t stride, int64_t count,
                        const float* slopes, float* dq, float* dw, float* dk);
}  // namespace by_512

}  // namespace xformer::kernels
