// Sets of neighbouring tokens as one row each (Combiner, Ren et al. 2021, section 3, whose sets are read through a
// pooled key and an expected value): the largest of a set's rows, and one query's softmax attention over its set, for
// sets of one size or of several that lie in each other.
// Nothing else reads or writes a token's row than its own set, so nothing is padded and no weights are kept.
#pragma once

#include <torch/types.h>

#include <vector>

#include "kernels/dropout/place.h"

namespace xformer::kernels {

// Of n tokens t = ceil(n / size) sets of `size` each; the last one may have fewer.
struct TokenSets {
  int64_t size = 1;
  at::Tensor valid = {};  // [b,n] bool, of the tokens; undefined: all are

  [[nodiscard]] int64_t count(int64_t n) const { return (n + size - 1) / size; }
};

// The tokens of each set: x [b,h,n,d] -> [b,h,t,size,d], zero behind the last token.
[[nodiscard]] at::Tensor in_sets(const at::Tensor& x, const TokenSets& sets);

// x [b,h,n,d] -> [b,h,t,d]: for every set the largest of its valid rows, channel by channel; 0 of no row. A NaN is
// larger than all. The gradient goes to the first row that has the value. Strides are free.
[[nodiscard]] at::Tensor set_max(const at::Tensor& x, const TokenSets& sets);
// The definition.
[[nodiscard]] at::Tensor set_max_reference(const at::Tensor& x, const TokenSets& sets);

struct SetAttentionOptions {
  TokenSets sets;
  DropoutPlace dropout;  // element e of the weights [b,h,t,size]
};

// q [b,h,t,d], k [b,h,n,d], v [b,h,n,e] -> [b,h,t,e]: softmax(q k^T / sqrt(d)) v of each set's query over its own valid
// tokens; 0 without one. Strides are free. FLOPs on the CPU: 2 (d + e) for each token up to a sample's last valid one.
[[nodiscard]] at::Tensor set_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                       const SetAttentionOptions& options);
// The definition, with weights [b,h,t,1,size], which it reports as probe("weights").
[[nodiscard]] at::Tensor set_attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                 const SetAttentionOptions& options);

// Sets of each size, a multiple of the one before: so each set lies in one of the next size.
struct NestedSetsOptions {
  std::vector<int64_t> sizes;
  at::Tensor valid = {};      // as above
  DropoutPlace dropout = {};  // element e of the weights [b,h,t,size]: of each size at its own of `sites`
  std::vector<int64_t> sites = {};

  [[nodiscard]] DropoutPlace place(size_t level) const { return {dropout.p, dropout.state, sites[level]}; }
};

// set_attention() of each size, whose queries are q[i] [b,h,t_i,d]: keys and values, and their gradients, go by once
// for all of them.
[[nodiscard]] std::vector<at::Tensor> nested_set_attention(const std::vector<at::Tensor>& q, const at::Tensor& k,
                                                           const at::Tensor& v, const NestedSetsOptions& options);
// The definition; of several sizes it reports weights as probe("sets2.weights") and so on.
[[nodiscard]] std::vector<at::Tensor> nested_set_attention_reference(const std::vector<at::Tensor>& q,
                                                                     const at::Tensor& k, const at::Tensor& v,
                                                                     const NestedSetsOptions& options);

}  // namespace xformer::kernels
