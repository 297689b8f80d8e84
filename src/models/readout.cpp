#include "models/readout.h"

#include <ATen/Functions.h>

#include <cmath>

#include "kernels/classifier/classifier.h"
#include "kernels/token_mean/token_mean.h"
#include "models/place_loss.h"
#include "tensor/probe.h"

namespace xformer::models {

Readout::Readout(Model& owner, const ReadoutOptions& options, const ModelRequest& request, int64_t pinned,
                 const at::Tensor& tokens)
    : owner_(owner),
      options_(options),
      pinned_(pinned),
      outputs_(request.outputs),
      tokens_(options.tied ? tokens : at::Tensor()) {
  const InitStream init(request.seed);
  if (options.norm)
    norm_ = owner.register_module("norm", std::make_shared<LayerNorm>(options.dim, options.norm_epsilon));
  dropout_ = kernels::Dropout(options.activation == "gelu" ? options.dropout : 0, owner.dropout_stream());
  if (options.tied) return;
  std::vector<int64_t> widths{options.summaries * options.dim *
                              (options.pooling == "flatten" ? options.padded_len : 1)};
  widths.insert(widths.end(), options.hidden.begin(), options.hidden.end());
  widths.push_back(request.outputs);
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    const bool last = i + 2 == widths.size();
    const std::string name = last ? options.last : i == 0 ? "classifier_in" : "classifier_middle";
    auto map = std::make_shared<attention::Linear>(widths[i], widths[i + 1], true, options.init, init.child(name));
    if (options.init == "glra") {  // flax Dense: LeCun normal, zero bias
      const at::NoGradGuard no_grad;
      map->weight.copy_(init.child(name).truncated_normal("weight", {widths[i + 1], widths[i]},
                                                          1 / std::sqrt(static_cast<double>(widths[i]))));
    }
    classifier_.push_back(owner.register_module(name, map));
  }
}

at::Tensor Readout::pooled(const at::Tensor& stacked, const at::Tensor& valid) const {
  // A last layer may have made some of the places alone.
  const bool all = options_.reads_padding() || !valid.defined() || valid.size(1) != stacked.size(1);
  at::Tensor x = norm_ ? norm_->forward(stacked, all ? at::Tensor() : valid) : stacked;
  if (norm_) probe("norm", x);
  if (options_.activation == "gelu") x = dropout_(at::gelu(x), owner_.is_training());
  if (options_.activation == "relu") x = at::relu(x);
  const bool padded = options_.pooling == "mean_padded", mean = padded || options_.pooling == "mean_valid";
  if (options_.mask_output && valid.defined() && !mean) x = x * valid.unsqueeze(-1).to(x.scalar_type());
  const int64_t length = x.size(1) - pinned_;
  if (options_.pooling == "none") {
    const at::Tensor places = x.narrow(1, pinned_, length);
    return options_.last_dropped ? at::constant_pad_nd(places, {0, 0, 0, 1}) : places;
  }
  at::Tensor result;
  if (options_.pooling == "first") {
    result = x.select(1, pinned_ - 1);
  } else if (options_.pooling == "flatten") {
    XF_CHECK(length == options_.padded_len, UserError,
             "model.pooling=flatten needs sequences of the {} places that the model was built for, got {} (no length "
             "buckets)",
             options_.padded_len, length);
    result = x.narrow(1, pinned_, length).flatten(1);
  } else if (options_.pooling == "prefix_max") {
    at::Tensor places = x.narrow(1, pinned_, length);
    if (valid.defined()) {
      const at::Tensor none = valid.narrow(1, pinned_, length).logical_not();
      // A sequence without a place has no largest number: 0.
      places = places.masked_fill(none.logical_and(none.all(1, /*keepdim=*/true).logical_not()).unsqueeze(-1), -6e4);
      places = places.masked_fill(none.all(1, /*keepdim=*/true).unsqueeze(-1), 0);
    }
    result = (x.select(1, 0) + places.amax(1)) / 2;
  } else {
    result = kernels::token_mean(x, {!padded || options_.mask_output ? valid : at::Tensor(), pinned_, padded});
  }
  probe("pooled", result);
  return result;
}

at::Tensor Readout::scored(at::Tensor x, const at::Tensor& labels) const {
  std::vector<kernels::LinearMap> maps;
  for (const auto& map : classifier_) maps.push_back(map->map());
  if (options_.tied) maps.push_back({tokens_.narrow(0, tokens_.size(0) - outputs_, outputs_), {}});
  if (options_.loss_block > 0 && labels.defined()) return place_losses(x, maps.back(), labels, options_.loss_block);
  x = kernels::classifier(x, maps);
  x = x.to(at::promote_types(maps.front().weight.scalar_type(), at::kFloat));
  probe("logits", x);
  return x;
}

attention::Cost Readout::cost(int64_t sequences, int64_t length) const {
  int64_t weights = options_.tied ? outputs_ * options_.dim : 0;
  for (const auto& map : classifier_) weights += map->weight.numel();
  const double flops = 2.0 * static_cast<double>(sequences * (options_.pooling == "none" ? length : 1) * weights);
  return {flops, flops, 0};
}

}  // namespace xformer::models
