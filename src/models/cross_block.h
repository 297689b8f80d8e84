// A layer of a decoder that reads another sequence (Vaswani et al., "Attention Is All You Need", NeurIPS 2017, section
// 3.1): attention to its own earlier places, attention to the other sequence, a feed-forward part, each with a residual
// connection, a norm and dropout of its branch.
//
//   pre   x += drop(self(norm(x)));  x += drop(cross(norm(x), other));  x += drop(ff(norm(x)))
//   post  x = norm(x + drop(self(x))), and so on
#pragma once

#include "models/block.h"

namespace xformer::models {

class CrossBlock : public torch::nn::Module {
 public:
  CrossBlock(const BlockOptions& options, bool post_norm, std::shared_ptr<attention::SequenceMixer> own,
             std::shared_ptr<attention::MultiHeadMixer> cross, const std::shared_ptr<kernels::DropoutStream>& stream,
             const InitStream& init);

  // x [b,n,m], all of it valid; other [b,k,m] with its mask.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& other, const SequenceMask& other_mask,
                     attention::Carry& carry);
  // What decode needs of the other sequence.
  [[nodiscard]] attention::State source(const at::Tensor& other) const;
  at::Tensor decode(const at::Tensor& x, const attention::DecodingStep& step, const attention::State& source,
                    const SequenceMask& other_mask, attention::Carry& carry, attention::State& kept);
  [[nodiscard]] attention::Cost cost(int64_t batch, int64_t length, int64_t other_length) const;

 private:
  using Crossed = std::function<kernels::Branch(const at::Tensor& x)>;
  [[nodiscard]] at::Tensor behind_self(const at::Tensor& x, const Crossed& crossed) const;

  const bool post_norm_;
  std::shared_ptr<ResidualBlock> self_;  // without a feed-forward part
  std::shared_ptr<LayerNorm> cross_norm_, ff_norm_;
  std::shared_ptr<attention::MultiHeadMixer> cross_;
  std::unique_ptr<FeedForward> ff_;
  kernels::Dropout cross_dropout_, ff_dropout_;
};

}  // namespace xformer::models
