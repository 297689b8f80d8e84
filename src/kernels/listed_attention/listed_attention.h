// Softmax attention in which each row reads a short list of keys where they lie, in time n L d and with nothing of size
// [n,m] or [n,L,d]:
//   P_i = softmax over l of q_i k_p(i,l) / sqrt(d) + B_il,   out_i = sum over l of drop(P)_il v_p(i,l)
// with p(i,l) the l-th place of the row's list and B a bias, where one is given. The CPU's kernel keeps no weights: one
// number a row is kept, the log of its sum, from which the backward pass makes them again. Other devices have kernels
// of this kind for heads of float, bf16 or fp16 up to 64 wide; their backward pass holds two floats for each place.
//
// Axis letters: m keys, c lists, L places of a list.
#pragma once

#include "kernels/dropout/place.h"

namespace xformer::kernels {

struct ListedAttentionOptions {
  at::Tensor places;     // int64 [b or 1,h or 1,c,L]: where in k and v the keys of a list are, each once; -1 for none
  at::Tensor lists;      // int64 [b,h,n]: which list a row reads; undefined: row i reads list i, and c = n
  at::Tensor key_valid;  // [b,m] bool, which keys count; undefined: all
  at::Tensor row_valid;  // [b,n] bool: other rows of the output are zero; undefined: all are valid
  DropoutPlace dropout;  // element e of the weights [b,h,n,L]
  // Or as if the weights were [b,h,n,m], zero but for the listed keys: lists of any length then drop alike. On a CPU;
  // devices run the definition.
  bool drops_by_key = false;
};

// q [b,h,n,d], k [b,h,m,d], v [b,h,m,e], bias [b,h,n,L] or undefined -> [b,h,n,e]. Rows that are not valid or have no
// key are zero, with zero gradient. Strides are free; the CPU's result lies in memory as [b,n,h,e]. The bias is float
// where q, k and v are in 16 bits. FLOPs on the CPU: 2 (d + e) for each place that is there, of valid rows.
[[nodiscard]] at::Tensor listed_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                          const ListedAttentionOptions& options, const at::Tensor& bias = {});

// The definition, with weights [b,h,n,L]; reports them as probe("weights").
[[nodiscard]] at::Tensor listed_attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                    const ListedAttentionOptions& options, const at::Tensor& bias = {});

}  // namespace xformer::kernels
