// A causal model read one place at a time, and what it keeps of the places so far.
#pragma once

#include "models/model.h"

namespace xformer::models {

// Tensors are [batch, ..]. A model that remembers earlier sequences (init_state) reads on behind its longest length;
// another's places end there.
struct Decoded {
  int64_t places = 0;              // of the sequence at hand
  State memory;                    // what stands before it: init_state's of a model that has read nothing
  std::vector<State> layers = {};  // of its places, by layer
};

// Of a Model whose scores of a place can be had without those of the earlier ones.
class DecodingModel {
 public:
  virtual ~DecodingModel() = default;
  // ids [b,n] of the places at hand, one, or any number that begin a sequence -> scores at the last of them
  // [b,outputs], those that forward gives there for all places of the sequence. In evaluation and without gradients.
  virtual at::Tensor decode(const at::Tensor& ids, Decoded& so_far) = 0;
};

}  // namespace xformer::models
