#include "models/cross_block.h"

#include "tensor/probe.h"

namespace xformer::models {

namespace {

std::shared_ptr<ResidualBlock> self_block(BlockOptions options, bool post_norm,
                                          std::shared_ptr<attention::SequenceMixer> own,
                                          const std::shared_ptr<kernels::DropoutStream>& stream,
                                          const InitStream& init) {
  options.ff_dim = 0;
  if (post_norm) return std::make_shared<PostNormBlock>(options, std::move(own), stream, init);
  return std::make_shared<PreNormBlock>(options, std::move(own), stream, init);
}

}  // namespace

CrossBlock::CrossBlock(const BlockOptions& options, bool post_norm, std::shared_ptr<attention::SequenceMixer> own,
                       std::shared_ptr<attention::MultiHeadMixer> cross,
                       const std::shared_ptr<kernels::DropoutStream>& stream, const InitStream& init)
    : post_norm_(post_norm) {
  self_ = register_module("self", self_block(options, post_norm, std::move(own), stream, init));
  cross_norm_ = register_module("cross_norm", std::make_shared<LayerNorm>(options.dim, options.norm_epsilon));
  cross_ = register_module("cross", std::move(cross));
  cross_dropout_ = kernels::Dropout(options.dropout, stream);
  ff_norm_ = register_module("ff_norm", std::make_shared<LayerNorm>(options.dim, options.norm_epsilon));
  ff_ = std::make_unique<FeedForward>(*this, options, stream, init);
  ff_dropout_ = kernels::Dropout(options.dropout, stream);
}

at::Tensor CrossBlock::forward(const at::Tensor& x, const at::Tensor& other, const SequenceMask& other_mask,
                               attention::Carry& carry) {
  return behind_self(self_->forward(x, {{}, /*causal=*/true}, carry),
                     [&](const at::Tensor& y) { return cross_->cross(y, {}, other, other_mask, carry); });
}

attention::State CrossBlock::source(const at::Tensor& other) const {
  const std::vector<at::Tensor> rows = cross_->cross_rows(other);
  return {{"keys", rows[0]}, {"values", rows[1]}};
}

at::Tensor CrossBlock::decode(const at::Tensor& x, const attention::DecodingStep& step, const attention::State& source,
                              const SequenceMask& other_mask, attention::Carry& carry, attention::State& kept) {
  const std::vector<at::Tensor> rows{source.at("keys"), source.at("values")};
  return behind_self(self_->decode(x, step, carry, kept),
                     [&](const at::Tensor& y) { return cross_->cross(y, {}, rows, other_mask, carry); });
}

at::Tensor CrossBlock::behind_self(const at::Tensor& x, const Crossed& crossed) const {
  const bool training = is_training();
  const kernels::DropoutPlace drop = cross_dropout_.place(training);
  const auto mixed = [&](const at::Tensor& y) { return probed_branch("cross", [&] { return crossed(y); }); };
  const auto fed = [&](const at::Tensor& y, const kernels::NormWeights& norm) {
    return probed_branch("ff", [&] { return ff_->branch(y, {}, norm); });
  };
  if (post_norm_) {
    const at::Tensor half = cross_norm_->behind(x, mixed(x), drop, {}).normed;
    return ff_norm_->behind(half, fed(half, {}), ff_dropout_.place(training), {}).normed;
  }
  const kernels::ResidualNorm entry = cross_norm_->behind(x, {}, {}, {});
  const kernels::NormedRows half = ff_->entry(*ff_norm_, entry.sum, mixed(entry.normed), drop, {});
  return kernels::add_branch(half.sum, fed(half.rows, half.norm), ff_dropout_.place(training));
}

attention::Cost CrossBlock::cost(int64_t batch, int64_t length, int64_t other_length) const {
  attention::Cost result = self_->cost(batch, length);
  result += cross_->cross_cost(batch, length, other_length);
  result += ff_->cost(batch, length);
  return result;
}

}  // namespace xformer::models
