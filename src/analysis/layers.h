// What the attention of every layer of a trained model has, example by example.
#pragma once

#include "training/trained_run.h"

namespace xformer::analysis {

using training::TrainedRun;

// Queries, keys, values and result of one layer's attention over one example: q, k, v, mixed [s,h,n,d], valid [s,n];
// s sequences (two of a pair), n with what the model puts in front.
struct LayerTensors {
  at::Tensor q, k, v, mixed, valid;
  int64_t front = 0;    // places before the sequence: CLS
  bool causal = false;  // no place sees a later one
};

// Runs `count` examples of a split, drawn without repetition by `seed` (all, in order, where there are no more), one at
// a time, and hands over every layer. UserError where the model's layers do not report queries and keys: it has no
// attention of heads with its own projections. Returns how many examples there were.
int64_t for_each_layer(const TrainedRun& run, data::Split split, int64_t count, uint64_t seed,
                       const std::function<void(int64_t layer, const LayerTensors& tensors)>& visit,
                       const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace xformer::analysis
