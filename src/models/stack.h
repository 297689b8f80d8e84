// The middle part of a Transformer: layers of any attention over vectors, [b,n,m] -> [b,n,m].
#pragma once

#include "models/block.h"
#include "models/decoding.h"
#include "models/key_compression.h"
#include "models/model.h"

namespace xformer::models {

struct StackOptions {
  BlockOptions block;  // its stochastic_depth is the last layer's and rises evenly from 0 in the first
  int64_t layers = 2, heads = 2, head_dim = 32;
  double attention_dropout = 0.1;
  bool attention_bias = true;
  std::string attention_init = "mlpen";  // of the projections
  KeyCompression compression = {};
  bool post_norm = false;
  bool reversible = false;
  bool first_mixer_norm = true;    // of pre-norm blocks; false: the first block's mixer takes what the embedding made
  bool padding_read = false;       // whoever comes behind reads tokens that are not valid
  bool padding_is_valid = false;   // to the layers: all places of an example with any valid one are
  bool reads_pinned_only = false;  // whoever comes behind reads only the pinned tokens: the last block makes no others
};

// Its layers are registered in the model that owns it, as layer0, layer1, ...
class Stack {
 public:
  // For sequences of at most max_len tokens, of which the first `pinned` are no part of the data's sequence.
  Stack(Model& owner, const StackOptions& options, const ModelRequest& request, int64_t max_len, int64_t pinned);

  // x [b,n,m], valid [b,n] bool or undefined where all are. Layers leave in `state` what they remember.
  [[nodiscard]] at::Tensor forward(at::Tensor x, const at::Tensor& valid, State& state) const;
  // x [b,n,m] of the places at hand (DecodingModel) -> [b,n,m].
  [[nodiscard]] at::Tensor decode(at::Tensor x, Decoded& so_far) const;
  // Whether what x of forward() holds where it is not valid reaches anything that somebody reads. It does not where
  // every layer begins with a norm that makes zeros of such places.
  [[nodiscard]] bool reads_padding() const { return reads_padding_; }
  [[nodiscard]] attention::Cost cost(int64_t sequences, int64_t length) const;

 private:
  const bool causal_, padding_read_, padding_is_valid_;
  bool reads_padding_;
  const int64_t max_len_, decoding_length_;
  std::vector<std::shared_ptr<attention::LayerBlock>> layers_;
  std::vector<std::shared_ptr<PreNormBlock>> reversible_;  // the same layers, when they are run that way
  std::shared_ptr<attention::SharedObjects> shared_;
};

}  // namespace xformer::models
