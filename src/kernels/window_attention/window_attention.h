// Softmax attention over sliding windows and blocks in products of small dense blocks: time and memory n w, nothing of
// size [n, n] (attention-core 9.1, 9.2 and 9.3: blocked window, dilation, keys that all rows see).
//   P = softmax(q k^T / sqrt(d) + bias) over each row's window and the extra keys,   out = drop(P) v
// On the CPU keys and values are read where they lie and the weights are not kept: one number a row is, the log of its
// sum, from which the backward pass makes them again. Padding behind the last valid token is skipped. Other devices
// have kernels of this kind for heads up to 64 wide, of float, bf16 or fp16, without distances; beside 16 bits log-sums
// are float.
#pragma once

#include "kernels/dropout/place.h"
#include "kernels/window_attention/windows.h"

namespace xformer::kernels {

// Keys on top of the columns, in the same softmax. They must not be among a row's columns: each key counts once.
struct ExtraKeys {
  at::Tensor k, v;     // [b,h,m,d], all of them for every row: g = m; or those of each block, as `places` says
  at::Tensor allowed;  // bool [b,h or 1,m], which of them count; undefined: all
  // int64 [h or 1,t,g]: where in k and v the keys of a block are, -1 for none; without dilation. They are read where
  // they lie (BigBird's random blocks, Sinkhorn's sorted ones).
  at::Tensor places = {};
  at::Tensor bias = {};  // [b or 1,h or 1,m]: as that of the columns
  // g, 0 without any.
  [[nodiscard]] int64_t count() const { return !k.defined() ? 0 : places.defined() ? places.size(2) : k.size(2); }
};

// What the distance between a row and a key adds to its score, for offsets -back to ahead of the windows, r of them;
// extra keys gain nothing. Adaptive spans are of this kind (Sukhbaatar et al. 2019, equation 5), and so are relative
// positions (Shaw et al. 2018):  score = q (k_j + e_(j - i)) / sqrt(d) + bias_(j - i)
struct RelativeKeys {
  at::Tensor vectors;  // e [r,d], those of all heads
  at::Tensor bias;     // [h,r]; -infinity: the head does not see such keys

  [[nodiscard]] bool defined() const { return vectors.defined(); }
};

struct WindowAttentionOptions {
  Windows windows;
  at::Tensor valid;  // [b,n] bool, of keys and of rows; undefined: all are
  // Element e of the weights [b,h,r,t,c,g+w], extra keys first, is dropped as kernels::dropout would drop it.
  DropoutPlace dropout;
  // [b or 1,h or 1,n]: what a key's scores gain in every row, without a gradient; -infinity: no row sees it. Undefined:
  // nothing.
  at::Tensor bias = {};
};

// q, k [b,h,n,d], v [b,h,n,e] -> [b,h,n,e]. Rows that are not valid or see no key are zero, with zero gradient. Strides
// are free; the CPU's result lies in memory as [b,n,h,e], as an output projection wants it.
// With log_sum it also gives the log of each row's sum of exp(scores) [b,h,n,1], by which several partial softmaxes
// combine; rows that are zero have a very low, finite one. FLOPs on the CPU: 4 d (executed_pairs + n g) for each head;
// with `relative`, 2 d relative_products(windows, back, ahead) for a head whose bias is finite from -back to ahead:
// what stands farther away is not looked at.
[[nodiscard]] at::Tensor window_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                          const ExtraKeys& extra, const WindowAttentionOptions& options,
                                          at::Tensor* log_sum = nullptr, const RelativeKeys& relative = {});

// Whether it takes its kernels where q, k and v are like these heads, without distances.
[[nodiscard]] bool window_attention_runs_fused(const at::Tensor& heads);

// The definition, with weights [b,h,r,t,c,g+w]; reports them as probe("weights").
[[nodiscard]] at::Tensor window_attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                    const ExtraKeys& extra, const WindowAttentionOptions& options,
                                                    at::Tensor* log_sum = nullptr, const RelativeKeys& relative = {});

// Rows of width d that are multiplied for one head without extra keys: two of each pair, and one of each distance.
[[nodiscard]] double relative_products(const Windows& windows, int64_t back, int64_t ahead);

// The log-sum of a row without a key: the lowest finite number that softmax is filled with (masked_softmax).
[[nodiscard]] constexpr double lowest_log_sum(at::ScalarType type) { return type == at::kDouble ? -1e300 : -1e30; }

}  // namespace xformer::kernels
