// Required attention span (Tay et al., Long Range Arena, 2021, section 2.3): how far, on average, a query of a trained
// Transformer looks: the mean over queries i of sum_j A_ij |i - j|, A the softmax weights. Of other attentions that are
// linear in the values A is the matrix with A V their result (found with the columns of the identity in place of V),
// its rows' absolute values over their sum: such weights may be negative, and need not sum to one.
#pragma once

#include "analysis/layers.h"
#include "attention/core.h"

namespace xformer::analysis {

// For each sequence and head the mean over valid queries [s,h], computed over blocks of queries: no [n,n] tensor.
// `first`: places before it count neither as queries nor as keys; weights are renormalised over the others.
[[nodiscard]] at::Tensor spans(const LayerTensors& tensors, int64_t first);
// The same of a matrix [s,h,n,n] for each sequence and head.
[[nodiscard]] at::Tensor spans(const at::Tensor& matrix, const at::Tensor& valid, int64_t first);

// The matrix [s,h,n,n] that `core` multiplies values by, given these queries and keys. UserError where there is none:
// with it and the layer's values another result comes out than the layer had.
[[nodiscard]] at::Tensor effective_matrix(attention::AttentionCore& core, const LayerTensors& tensors);

inline constexpr int64_t kLongestMatrix = 4096;  // places of a sequence whose matrix is built

struct HeadSpan {
  int64_t layer = 0, head = 0;
  double span = 0;           // in places of the model's input, CLS as place 0
  double without_front = 0;  // without CLS as query and key
};

struct RequiredSpan {
  std::vector<HeadSpan> heads;
  double span = 0, without_front = 0;  // means over all layers and heads
  int64_t examples = 0, sequences = 0, front = 0;
  bool effective = false;  // by effective matrices, not by softmax weights
  // What uniform weights over the same sequences give: (n^2 - 1) / (3 n), causal (n - 1) / 4.
  double uniform = 0;
};

// UserError for a model whose attention is no matrix that values are multiplied by, or that hands a state from layer to
// layer, and for one of more than kLongestMatrix places that is not softmax.
[[nodiscard]] RequiredSpan required_span(const TrainedRun& run, data::Split split, int64_t examples, uint64_t seed,
                                         const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace xformer::analysis
