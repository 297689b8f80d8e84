// Cross entropy of every place against a vocabulary, without the scores of all places in memory: they are formed a
// block of places at a time, and formed again in the backward pass (the linear map and the loss as one operation, as in
// Wijmans et al., "Cut Your Losses in Large-Vocabulary Language Models", 2024). Kept is one log-sum for each place.
#pragma once

#include "kernels/linear/linear.h"

namespace xformer::models {

// x [b,n,m], a map to [.., v] and labels [b,n] int64 -> [b,n,1,2] in the map's type: -log softmax(map(x))[label], and
// whether the label has the highest score, which has no gradient. Both are 0 where the label is negative. `block`:
// places at once.
[[nodiscard]] at::Tensor place_losses(const at::Tensor& x, const kernels::LinearMap& map, const at::Tensor& labels,
                                      int64_t block);

}  // namespace xformer::models
