// One softmax over keys that were read in parts: each part's mean under its own softmax counts by its share of the
// whole sum of exponentials,
//   out = sum_i s_i out_i   with   s = softmax over parts of the logs of their sums
// (Combiner, Ren et al. 2021, whose rows see keys and summaries from several windows; Milakov and Gimelshein 2018).
#pragma once

#include <torch/types.h>

#include <vector>

namespace xformer::kernels {

// One or more outs [b,h,m,e] and as many log_sums [b,h,m,1], m >= n of each part its own -> [b,h,n,e] of their first n
// rows, on the CPU in memory [b,n,h,e]. The log of a part without keys is a very low, finite one. Strides of outs are
// free.
[[nodiscard]] at::Tensor joined_softmax(const std::vector<at::Tensor>& outs, const std::vector<at::Tensor>& log_sums,
                                        int64_t n);
// The definition; reports the shares [b,h,n,parts] as probe("shares").
[[nodiscard]] at::Tensor joined_softmax_reference(const std::vector<at::Tensor>& outs,
                                                  const std::vector<at::Tensor>& log_sums, int64_t n);

}  // namespace xformer::kernels
