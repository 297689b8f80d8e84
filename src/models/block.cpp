#include "models/block.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.h"
#include "tensor/probe.h"

namespace xformer::models {

namespace {

std::shared_ptr<Norm> norm_of(const BlockOptions& options) {
  if (options.norm == NormKind::kLayer) return std::make_shared<LayerNorm>(options.dim, options.norm_epsilon);
  return std::make_shared<BatchNorm>(options.dim, options.norm_epsilon, options.norm == NormKind::kBatchAll);
}

}  // namespace

FeedForward::FeedForward(torch::nn::Module& block, const BlockOptions& options,
                         const std::shared_ptr<kernels::DropoutStream>& stream, const InitStream& init)
    : block_(block),
      dim_(options.dim),
      ff_dim_(options.ff_dim),
      chunk_(options.ff_chunk),
      tanh_(options.activation == "gelu_tanh"),
      relu_(options.activation == "relu"),
      gated_(options.activation == "reglu"),
      dropout_(options.ff_dropout < 0 ? options.dropout : options.ff_dropout, stream) {
  torch::nn::Module& owner = gated_ ? block : *block.register_module("ff", std::make_shared<torch::nn::Module>("ff"));
  const auto linear = [&](const std::string& name, int64_t in, int64_t out) {
    const InitStream own = gated_ ? init.child("ff_" + name) : init.child("ff").child(name);
    auto map = std::make_shared<attention::Linear>(in, out, true, options.init, own);
    if (options.init == "glra") {  // flax's MlpBlock: bias N(0, 1e-6)
      const at::NoGradGuard no_grad;
      map->bias.copy_(own.normal("bias", {out}, 1e-6));
    }
    return owner.register_module(gated_ ? "ff_" + name : name, map);
  };
  in_ = linear("in", dim_, (gated_ ? 2 : 1) * ff_dim_);
  out_ = linear("out", ff_dim_, dim_);
}

kernels::NormedRows FeedForward::entry(Norm& norm, const at::Tensor& x, const kernels::Branch& branch,
                                       const kernels::DropoutPlace& drop, const at::Tensor& valid) const {
  const bool one = normalises(x.size(1)) && kernels::added_as_made(x, {x, out_->map(), in_->map()});
  return one ? norm.before(x, branch, drop, valid) : norm.Norm::before(x, branch, drop, valid);
}

kernels::Branch FeedForward::branch(const at::Tensor& x, const at::Tensor& needed,
                                    const kernels::NormWeights& norm) const {
  const int64_t batch = x.size(0), length = x.size(1);
  XF_ASSERT(!norm.weight.defined() || normalises(length), "a norm of a feed-forward part that is no single operator");
  kernels::DropoutPlace drop = dropout_.place(block_.is_training());
  if (whole(length)) {
    kernels::Branch all = map(x, drop, needed);
    all.norm = norm;
    return all;
  }
  const at::Tensor rows = x.reshape({batch * length, dim_}), state = drop.state;
  const at::Tensor needed_rows = needed.defined() ? needed.reshape(-1) : needed;
  std::vector<at::Tensor> parts;
  for (int64_t first = 0; first < rows.size(0); first += chunk_ * batch) {
    if (drop.p > 0) {
      // The stream's first row counts sequences; here rows are positions.
      drop.state = state.clone();
      drop.state.select(0, 2).mul_(length).add_(first);
    }
    const int64_t count = std::min(chunk_ * batch, rows.size(0) - first);
    const at::Tensor needed_part = needed.defined() ? needed_rows.narrow(0, first, count) : needed;
    parts.push_back(map(rows.narrow(0, first, count), drop, needed_part).made());
  }
  return {at::cat(parts, 0).view(x.sizes())};
}

kernels::Branch FeedForward::map(const at::Tensor& x, const kernels::DropoutPlace& drop,
                                 const at::Tensor& needed) const {
  if (!relu_ && !gated_) return {x, out_->map(), in_->map(), tanh_, drop, needed};
  const at::Tensor wide = kernels::linear(x, in_->map(), needed);
  if (relu_) return {.rows = drop(at::relu(wide)), .out = out_->map(), .needed = needed};
  const std::vector<at::Tensor> parts = wide.chunk(2, -1);
  return {.rows = drop(parts[0] * at::relu(parts[1])), .out = out_->map(), .needed = needed};
}

attention::Cost FeedForward::cost(int64_t batch, int64_t length) const {
  const auto hidden = static_cast<double>(batch * length * ff_dim_);
  const double flops = (gated_ ? 6 : 4) * hidden * static_cast<double>(dim_);
  return {flops, flops, (gated_ ? 3 : 2) * hidden};
}

kernels::Branch probed_branch(const char* name, const std::function<kernels::Branch()>& work) {
  if (probe_recorder == nullptr) return work();
  return {probed(name, [&] { return work().made(); })};
}

ResidualBlock::ResidualBlock(const BlockOptions& options, std::shared_ptr<attention::SequenceMixer> mixer,
                             const std::shared_ptr<kernels::DropoutStream>& stream, const InitStream& init)
    : rows_(options.rows), mixer_dropout_(options.dropout, stream) {
  if (options.mixer_norm) mixer_norm_ = register_module("mixer_norm", norm_of(options));
  mixer_ = register_module("mixer", std::move(mixer));
  if (options.ff_dim > 0) {
    ff_norm_ = register_module("ff_norm", norm_of(options));
    ff_ = std::make_unique<FeedForward>(*this, options, stream, init);
    ff_dropout_ = kernels::Dropout(options.dropout, stream);
  }
  if (options.stochastic_depth > 0) {
    mixer_path_ = kernels::Dropout(options.stochastic_depth, stream);
    ff_path_ = kernels::Dropout(options.stochastic_depth, stream);
  }
}

kernels::Branch ResidualBlock::taken(const char* name, const kernels::Dropout& path,
                                     const std::function<kernels::Branch()>& work) const {
  const kernels::Branch all = probed_branch(name, work);
  if (path.p() == 0 || !is_training()) return all;
  const at::Tensor made = all.made();
  return {made * path(at::ones({made.size(0), 1, 1}, made.options()), /*training=*/true)};
}

at::Tensor ResidualBlock::forward(const at::Tensor& x, const SequenceMask& mask, attention::Carry& carry) {
  return layer(x, mask, {[&](kernels::NormedRows& y) { return mixer_->branch(y, mask, carry); }, mixer_->takes_norm()});
}

at::Tensor ResidualBlock::decode(const at::Tensor& x, const attention::DecodingStep& step, attention::Carry& carry,
                                 attention::State& kept) {
  return layer(x, {}, {[&](kernels::NormedRows& y) -> kernels::Branch {
                 return {attention::decode(*mixer_, y.rows, step, carry, kept)};
               }});
}

at::Tensor PreNormBlock::decode_mixed(const at::Tensor& x, const attention::DecodingStep& step, attention::Carry& carry,
                                      attention::State& kept) {
  return attention::decode(*mixer_, mixer_norm_->behind(x, {}, {}, {}).normed, step, carry, kept);
}

at::Tensor PreNormBlock::mixed(const at::Tensor& x, const SequenceMask& mask, attention::Carry& carry) {
  const auto mixer = [&] { return mixer_->forward(mixer_norm_->behind(x, {}, {}, {}).normed, mask, carry); };
  return mixer_dropout_(probed("mixer", mixer), is_training());
}

at::Tensor PreNormBlock::fed(const at::Tensor& x) {
  const auto ff = [&] { return ff_->forward(ff_norm_->behind(x, {}, {}, {}).normed); };
  return ff_dropout_(probed("ff", ff), is_training());
}

at::Tensor PreNormBlock::layer(const at::Tensor& x, const SequenceMask& mask, const Mixed& mixer) {
  const bool training = is_training();
  const at::Tensor valid = mask.key_valid, needed = mask.needed();
  const at::Tensor kept_needed = needed.defined() ? kept(needed).contiguous() : needed;  // once for all who ask
  const kernels::Branch none{.needed = needed};
  kernels::NormedRows entry{x, x};
  if (mixer_norm_)
    entry = mixer.takes_norm ? mixer_norm_->before(x, none, {}, valid) : mixer_norm_->Norm::before(x, none, {}, valid);
  kernels::Branch mixed = taken("mixer", mixer_path_, [&] { return mixer.branch(entry); });
  if (rows_ > 0) mixed = {.rows = kept(mixed.made()), .needed = kept_needed};
  if (!ff_) return kernels::add_branch(kept(entry.sum), mixed, mixer_dropout_.place(training));
  const kernels::DropoutPlace mixer_drop = mixer_dropout_.place(training);
  const bool apart = ff_path_.p() > 0 && training;  // of some examples alone
  const kernels::NormedRows half = apart ? ff_norm_->Norm::before(kept(entry.sum), mixed, mixer_drop, kept(valid))
                                         : ff_->entry(*ff_norm_, kept(entry.sum), mixed, mixer_drop, kept(valid));
  const kernels::Branch fed = taken("ff", ff_path_, [&] { return ff_->branch(half.rows, kept_needed, half.norm); });
  return kernels::add_branch(half.sum, fed, ff_dropout_.place(training));
}

attention::Cost ResidualBlock::cost(int64_t batch, int64_t length) const {
  attention::Cost result = mixer_->cost(batch, length);
  if (ff_) result += ff_->cost(batch, rows_ == 0 ? length : rows_);
  return result;
}

at::Tensor PostNormBlock::layer(const at::Tensor& x, const SequenceMask& mask, const Mixed& mixer) {
  const bool training = is_training();
  const at::Tensor valid = mask.key_valid;
  kernels::NormedRows entry{x, x};
  const kernels::Branch mixed = taken("mixer", mixer_path_, [&] { return mixer.branch(entry); });
  const at::Tensor half = mixer_norm_->behind(x, mixed, mixer_dropout_.place(training), valid).normed;
  if (!ff_) return half;
  const kernels::Branch fed = taken("ff", ff_path_, [&] { return ff_->branch(half, mask.needed()); });
  return ff_norm_->behind(half, fed, ff_dropout_.place(training), valid).normed;
}

}  // namespace xformer::models
