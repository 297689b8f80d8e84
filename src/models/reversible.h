// Reversible residuals (Gomez et al. 2017, "The Reversible Residual Network"; Kitaev et al. 2020, "Reformer", section
// 3) for any block: of a whole stack only the last layer's output is kept for the backward pass, and each layer's input
// is computed again from its output:
//
//   y1 = x1 + F(x2),  y2 = x2 + G(y1)          x2 = y2 - G(y1),  x1 = y1 - F(x2)
//
// with F the mixer's and G the feed-forward's branch, both with norm and dropout. The stack begins with x1 = x2 = x and
// ends with the mean of its halves.
#pragma once

#include "models/block.h"

namespace xformer::models {

// x [b,n,m] -> [b,n,m]. Dropout is a function of (step, site, element), so that what is computed again is what was
// computed before. `parameters`: all that the blocks use, what they share included. The blocks' mixers have no Carry
// and no extra loss.
[[nodiscard]] at::Tensor run_reversible(const std::vector<std::shared_ptr<PreNormBlock>>& blocks,
                                        const std::vector<at::Tensor>& parameters, const at::Tensor& x,
                                        const SequenceMask& mask);

}  // namespace xformer::models
