// One attention core on given q, k and v, or one mixer on given x, with given parameters.
#pragma once

#include <optional>

#include "attention/descriptor.h"
#include "inspect/forward.h"

namespace xformer::inspect {

struct AttentionForward {
  attention::Resolved attention;
  Json options = Json::object();  // complete, keys without "attention."
  bool mixer = false;             // on x, with projections; else the core
  // 0: as the input has them. Of a mixer's input only heads x head_dim can be seen: 0 is 2 heads, m / heads wide.
  int64_t heads = 0, head_dim = 0, length = 0;
  int64_t max_len = 0;  // longest length that fixed-length attentions are built for; 0: the input's
  int64_t pinned = 0;   // leading tokens that are no part of the sequence
  bool causal = false;
  std::optional<int64_t> seed;  // draws parameters that the input lacks, as layer 0 of a training with this seed
  ForwardView view;
  at::Device device = at::kCPU;
};

// Inputs and parameters with their shapes at the input's sizes; without an input at those of the request, else 1
// sample, 2 heads 32 wide and 2,048 tokens.
[[nodiscard]] std::vector<ExpectedTensor> expected_tensors(const AttentionForward& request, const TensorMap& inputs);

// "output", what the view asks for and, with a seed, every parameter. Computed in the type of q or x. UserError for
// inputs that do not fit.
[[nodiscard]] ForwardResult forward_attention(const AttentionForward& request, const TensorMap& inputs);

}  // namespace xformer::inspect
