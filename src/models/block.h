// The Transformer blocks around any sequence mixer (attention-core 0.10).
#pragma once

#include "attention/multi_head.h"
#include "core/schema.h"
#include "models/norm.h"

namespace xformer::models {

enum class NormKind {
  kLayer,
  kBatch,     // over valid places
  kBatchAll,  // over all places of an example
};

// What the blocks of a family share.
struct BlockOptions {
  int64_t dim = 64;
  int64_t ff_dim = 128;  // 0: no feed-forward part
  double dropout = 0.1;
  double norm_epsilon = 1e-5;
  std::string activation = "gelu";  // gelu (exact), gelu_tanh, relu, or reglu: a relu(b) of two halves a and b
  std::string init = "mlpen";       // of the feed-forward part (attention-core 0.9)
  int64_t ff_chunk = 0;             // positions that the feed-forward part takes at once; 0: all
  double stochastic_depth = 0;      // each branch is left out for this share of the examples (Huang et al. 2016)
  double ff_dropout = -1;           // inside the feed-forward part; negative: as the branches'
  bool mixer_norm = true;           // of a pre-norm block
  int64_t rows = 0;                 // leading tokens that a pre-norm block goes on with behind its mixer; 0: all
  NormKind norm = NormKind::kLayer;
};

// Two linear maps with an activation between them: W2 drop(act(W1 x)). In chunks (Kitaev et al. 2020, section 3) it is
// the same function, bit for bit but for rounding: dropout numbers its elements over the whole.
// The maps are registered in the block that owns it: in its module "ff" as "in" and "out", those of a gated form
// (reglu, whose W1 gives both halves) in itself as "ff_in" and "ff_out".
class FeedForward {
 public:
  FeedForward(torch::nn::Module& block, const BlockOptions& options,
              const std::shared_ptr<kernels::DropoutStream>& stream, const InitStream& init);
  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const { return branch(x, {}).made(); }  // [b,n,m] -> [b,n,m]
  // The same, its last steps yet to be done, of needed places [b,n] (kernels::Branch); of what entry() gave, with its
  // norm.
  [[nodiscard]] kernels::Branch branch(const at::Tensor& x, const at::Tensor& needed,
                                       const kernels::NormWeights& norm = {}) const;
  // x + drop(branch) as branch() takes it: normalised, where that cannot be left to it.
  [[nodiscard]] kernels::NormedRows entry(Norm& norm, const at::Tensor& x, const kernels::Branch& branch,
                                          const kernels::DropoutPlace& drop, const at::Tensor& valid) const;
  [[nodiscard]] attention::Cost cost(int64_t batch, int64_t length) const;

 private:
  [[nodiscard]] kernels::Branch map(const at::Tensor& x, const kernels::DropoutPlace& drop,
                                    const at::Tensor& needed) const;

  // Whether it takes all positions at once.
  [[nodiscard]] bool whole(int64_t length) const { return chunk_ == 0 || chunk_ >= length; }
  // Whether it is the feed-forward part of kernels/, which may begin with a norm.
  [[nodiscard]] bool normalises(int64_t length) const { return whole(length) && !relu_ && !gated_; }

  const torch::nn::Module& block_;
  int64_t dim_, ff_dim_, chunk_;
  bool tanh_, relu_, gated_;
  std::shared_ptr<attention::Linear> in_, out_;
  kernels::Dropout dropout_;
};

// The branch that `work` makes, to its end where somebody looks at `name`.
[[nodiscard]] kernels::Branch probed_branch(const char* name, const std::function<kernels::Branch()>& work);

// A mixer and a feed-forward part, each with a residual connection, a norm and dropout of its branch.
class ResidualBlock : public attention::LayerBlock, public attention::DecodingMixer {
 public:
  ResidualBlock(const BlockOptions& options, std::shared_ptr<attention::SequenceMixer> mixer,
                const std::shared_ptr<kernels::DropoutStream>& stream, const InitStream& init);
  at::Tensor forward(const at::Tensor& x, const SequenceMask& mask, attention::Carry& carry) override;
  at::Tensor decode(const at::Tensor& x, const attention::DecodingStep& step, attention::Carry& carry,
                    attention::State& kept) override;
  [[nodiscard]] attention::Cost cost(int64_t batch, int64_t length) const override;
  [[nodiscard]] std::string backend() const override { return ""; }

 protected:
  // What the mixer makes of the layer's places; with takes_norm the layer may leave their norm to it.
  struct Mixed {
    std::function<kernels::Branch(kernels::NormedRows& x)> branch;
    bool takes_norm = false;
  };
  // x [b,n,m] -> [b,n,m].
  virtual at::Tensor layer(const at::Tensor& x, const SequenceMask& mask, const Mixed& mixer) = 0;

  const int64_t rows_;
  std::shared_ptr<Norm> mixer_norm_, ff_norm_;  // undefined where the options leave them out
  std::shared_ptr<attention::SequenceMixer> mixer_;
  std::unique_ptr<FeedForward> ff_;  // none where it has no width
  // The leading rows that go on.
  [[nodiscard]] at::Tensor kept(const at::Tensor& x) const {
    return rows_ == 0 || !x.defined() ? x : x.narrow(1, 0, rows_);
  }
  // As probed_branch, where in training some examples leave the branch out, and the others scale it by the inverse of
  // their share.
  [[nodiscard]] kernels::Branch taken(const char* name, const kernels::Dropout& path,
                                      const std::function<kernels::Branch()>& work) const;

  kernels::Dropout mixer_dropout_, ff_dropout_, mixer_path_, ff_path_;
};

// x += drop(mixer(norm(x))); x += drop(ff(norm(x))).
class PreNormBlock : public ResidualBlock {
 public:
  using ResidualBlock::ResidualBlock;
  // The branches: drop(mixer(norm(x))) and drop(ff(norm(x))).
  [[nodiscard]] at::Tensor mixed(const at::Tensor& x, const SequenceMask& mask, attention::Carry& carry);
  [[nodiscard]] at::Tensor decode_mixed(const at::Tensor& x, const attention::DecodingStep& step,
                                        attention::Carry& carry, attention::State& kept);
  [[nodiscard]] at::Tensor fed(const at::Tensor& x);

 private:
  at::Tensor layer(const at::Tensor& x, const SequenceMask& mask, const Mixed& mixer) override;
};

// x = norm(x + drop(mixer(x))); x = norm(x + drop(ff(x))) (Vaswani et al. 2017, section 3.1).
class PostNormBlock : public ResidualBlock {
 public:
  using ResidualBlock::ResidualBlock;

 private:
  at::Tensor layer(const at::Tensor& x, const SequenceMask& mask, const Mixed& mixer) override;
};

}  // namespace xformer::models
