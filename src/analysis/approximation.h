// How far efficient attentions are from softmax on the queries, keys and values of a trained softmax model: the error
// of each layer's result, had that attention stood in softmax's place.
#pragma once

#include "analysis/layers.h"
#include "attention/descriptor.h"

namespace xformer::analysis {

struct Candidate {
  attention::Resolved attention;
  Json options = Json::object();  // complete, keys without "attention."
};

struct LayerError {
  double relative = 0;  // |O' - O| / |O| over valid rows, Frobenius norms over heads and rows of all examples
  double cosine = 0;    // mean cosine of a valid row of a head with softmax's
};

struct ApproximationError {
  std::string attention;
  std::vector<LayerError> layers;
  int64_t untrained = 0;  // numbers in parameters of its own, drawn by the seed: it was never trained
  std::string refusal;    // why it could not be run; then there are no layers
};

// UserError for a model whose attention is not softmax. Candidates that are no attention cores (whole mixers have
// projections of their own) or find no memory are refused in their row.
[[nodiscard]] std::vector<ApproximationError> approximation_errors(
    const TrainedRun& run, const std::vector<Candidate>& candidates, data::Split split, int64_t examples, uint64_t seed,
    const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace xformer::analysis
