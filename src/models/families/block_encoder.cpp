// The block-embedding baseline for long sequences: cut into blocks, embed each alone, unite. Every block of b tokens
// goes through one encoder, whose positions begin anew in each, and is pooled to a vector e_c; the vectors become one,
// which is scored. What stands in other blocks is lost to a token: that is what the baseline shows (attention-third 5).
//   mean       of the blocks that hold a token          tokens  weighed by their numbers of tokens
//   max        of each channel over these blocks        first   the first block: a sequence cut off
//   attention  softmax over these blocks of u e_c, u learned, 0 to begin with
// With an overlap o blocks begin at multiples of b - o. A sequence of at most b tokens is one block of its length.
#include <ATen/Functions.h>

#include "models/encoder_options.h"
#include "tensor/probe.h"

namespace xformer::models::families::block_encoder {

struct Options : EncoderOptions {
  int64_t block = 512, block_overlap = 0;
  std::string unite = "mean";
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .include(encoder_schema())
          .add(&Options::block, "block", "tokens of a block, which the encoder sees alone", at_least(1))
          .add(&Options::block_overlap, "block_overlap", "tokens that a block shares with the next", at_least(0))
          .add(&Options::unite, "unite",
               "how vectors of blocks become one: mean, tokens (mean weighed by tokens), max, attention (mean weighed "
               "by a learned vector) or first (the first block alone)",
               one_of({"mean", "tokens", "max", "attention", "first"}));
  return kSchema;
}

Parts parts_of(const Options& options, const ModelRequest& request) {
  Parts parts = encoder_parts(options, request);
  parts.embedding.padded_len = parts.readout.padded_len = std::min(options.block, parts.embedding.padded_len);
  return parts;
}

// Tokens of a block are no image.
ModelRequest of_blocks(const Options& options, ModelRequest request) {
  if (options.block < encoder_padded_len(options, request.input.max_tokens)) request.input.columns = 0;
  return request;
}

class BlockEncoder : public Transformer {
 public:
  BlockEncoder(const Options& options, const ModelRequest& request)
      : Transformer(parts_of(options, request), of_blocks(options, request)), options_(options) {
    if (options.unite == "attention") unite_ = register_parameter("unite", at::zeros({options.dim}));
  }

  at::Tensor forward(const ModelInput& input, State& state) override {
    const int64_t b = input.key_valid.size(0), n = input.key_valid.size(1);
    const auto cut = [&](const at::Tensor& x) {  // [B,n,..] -> [B c, b, ..]
      if (!x.defined() || n <= options_.block) return x;
      const int64_t missing = (blocks(n) - 1) * step() + options_.block - n;
      const at::Tensor whole =
          x.dim() == 2 ? at::constant_pad_nd(x, {0, missing}) : at::constant_pad_nd(x, {0, 0, 0, missing});
      const at::Tensor parts = whole.unfold(1, options_.block, step());  // [B,c,b] or [B,c,width,b]
      return (x.dim() == 2 ? parts : parts.transpose(2, 3)).flatten(0, 1).contiguous();
    };
    const at::Tensor valid = cut(input.key_valid);
    const at::Tensor vectors = summary(cut(input.tokens), cut(input.values), valid, state).reshape({b, blocks(n), -1});
    probe("block_embedding", vectors);
    return readout_.scored(united(vectors, valid.view({b, blocks(n), -1}).sum(-1)));
  }

  // Blocks of one sequence are no segments of a stream.
  [[nodiscard]] State init_state(int64_t) const override { return {}; }

  [[nodiscard]] int64_t rows_of_example(const ModelInput& input) const override {
    return blocks(input.key_valid.size(1));
  }

  [[nodiscard]] attention::Cost cost(int64_t batch, int64_t length) const override {
    attention::Cost result = summary_cost(batch * blocks(length), std::min(length, options_.block));
    result += readout_.cost(batch, length);
    return result;
  }

 private:
  [[nodiscard]] int64_t step() const { return options_.block - options_.block_overlap; }
  [[nodiscard]] int64_t blocks(int64_t n) const {
    return n <= options_.block ? 1 : (n - options_.block_overlap + step() - 1) / step();
  }

  // vectors [B,c,m], counts [B,c]: tokens of each block -> [B,m].
  [[nodiscard]] at::Tensor united(const at::Tensor& vectors, const at::Tensor& counts) const {
    if (options_.unite == "first") return vectors.select(1, 0);
    const at::Tensor held = counts.gt(0), none = held.logical_not().unsqueeze(-1);
    if (options_.unite == "max") {
      const at::Tensor largest = vectors.masked_fill(none, -6e4).amax(1);
      return largest.masked_fill(held.any(1, /*keepdim=*/true).logical_not(), 0);
    }
    at::Tensor weights;
    if (options_.unite == "attention") {
      const at::Tensor logits = (vectors * unite_).sum(-1).masked_fill(held.logical_not(), -6e4);
      weights = at::softmax(logits, -1) * held;
    } else {
      weights = (options_.unite == "tokens" ? counts : held).to(vectors.scalar_type());
      weights = weights / weights.sum(1, /*keepdim=*/true).clamp_min(1);
    }
    probe("block_weights", weights);
    return (vectors * weights.unsqueeze(-1)).sum(1);
  }

  const Options options_;
  at::Tensor unite_;  // u [m]
};

std::vector<FamilyDescriptor> describe() {
  FamilyDescriptor family;
  family.name = "block-encoder";
  family.aliases = {"block-embedding"};
  family.title = "Encoder of blocks";
  family.summary = "Baseline: blocks of the sequence, each through one encoder alone; their vectors unite.";
  family.options = schema().options();
  family.padded_len = [](const Json& options, int64_t max_tokens) {
    return encoder_padded_len(schema().read(options), max_tokens);
  };
  family.check = [](const ModelRequest& request) {
    const Options options = schema().read(request.model_options);
    XF_CHECK(!request.causal, UserError,
             "the block-encoder family has no causal form: vectors of whole blocks become one; take encoder/{}",
             request.attention.name);
    check_encoder(options, request);
    XF_CHECK(request.input.sequences == 1, UserError,
             "the block-encoder family takes one sequence, the task's examples have {}; take dual-encoder/{}",
             request.input.sequences, request.attention.name);
    XF_CHECK(options.block_overlap < options.block, UserError,
             "model.block_overlap: expected less than model.block = {}, got {}", options.block, options.block_overlap);
    XF_CHECK(options.pooling != "flatten", UserError,
             "model.pooling: a block becomes one vector of the model's width; expected mean_padded, mean_valid, "
             "cls_token, cls_vector or prefix_max, got flatten");
  };
  family.build = [](const ModelRequest& request) {
    return std::make_shared<BlockEncoder>(schema().read(request.model_options), request);
  };
  return {family};
}

}  // namespace xformer::models::families::block_encoder
