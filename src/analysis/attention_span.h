// Required attention span (Tay et al., Long Range Arena, 2021, section 2.3): how far, on average, a query of a trained
// Transformer looks: the mean over queries i of sum_j A_ij |i - j|, A the softmax weights.
#pragma once

#include "analysis/trained_run.h"

namespace xformer::analysis {

// For each sequence and head the mean over valid queries [s,h], computed over blocks of queries: no [n,n] tensor.
// `first`: places before it count neither as queries nor as keys; weights are renormalised over the others.
[[nodiscard]] at::Tensor spans(const LayerTensors& tensors, int64_t first);

struct HeadSpan {
  int64_t layer = 0, head = 0;
  double span = 0;           // in places of the model's input, CLS as place 0
  double without_front = 0;  // without CLS as query and key
};

struct RequiredSpan {
  std::vector<HeadSpan> heads;
  double span = 0, without_front = 0;  // means over all layers and heads
  int64_t examples = 0, sequences = 0, front = 0;
  double uniform = 0;  // what uniform weights over the same sequences give: (n^2 - 1) / (3 n)
};

// UserError for a model whose attention has no softmax weights over all pairs.
[[nodiscard]] RequiredSpan required_span(const TrainedRun& run, data::Split split, int64_t examples, uint64_t seed,
                                         const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace xformer::analysis
