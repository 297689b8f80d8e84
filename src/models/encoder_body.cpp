#include "models/encoder_body.h"

#include <ATen/Functions.h>

#include <cmath>

#include "kernels/embedding/embedding.h"
#include "tensor/probe.h"

namespace xformer::models {

namespace {

// Sines in the first half of the columns, cosines in the second (GLRA common_layers.sinusoidal_init).
at::Tensor sinusoidal_positions(int64_t length, int64_t dim) {
  at::Tensor table = at::zeros({length, dim});
  auto values = table.accessor<float, 2>();
  const int64_t half = dim / 2;
  const double factor = half > 1 ? -std::log(10000.0) / static_cast<double>(half - 1) : 0;
  for (int64_t position = 0; position < length; ++position) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * std::exp(factor * static_cast<double>(i));
      values[position][i] = static_cast<float>(std::sin(angle));
      values[position][half + i] = static_cast<float>(std::cos(angle));
    }
  }
  return table;
}

}  // namespace

EncoderBody::EncoderBody(const EncoderOptions& options, const ModelRequest& request)
    : options_(options),
      rows_(options.vocabulary_rows > 0 ? options.vocabulary_rows
                                        : request.input.vocabulary + (options.pooling == "cls_token")),
      prefix_len_(attention::prefix_tokens(request.attention, request.attention_options)),
      padded_len_(encoder_padded_len(options, request.input.max_tokens)),
      cls_vector_(options.pooling == "cls_vector") {
  const InitStream init(request.seed);
  dropout_stream_ = std::make_shared<kernels::DropoutStream>(request.seed);
  shared_ = register_module("shared", std::make_shared<attention::SharedObjects>());
  add_embedding(request.input, init);
  add_layers(request, init);
  norm_ = register_module("norm", std::make_shared<LayerNorm>(options.dim, options.norm_epsilon));
  output_dropout_ = kernels::Dropout(options.activate_output ? options.dropout : 0, dropout_stream_);
}

void EncoderBody::add_embedding(const InputSpec& input, const InitStream& init) {
  const int64_t dim = options_.dim, length = padded_len_ + (cls_vector_ ? 1 : 0);
  if (input.vocabulary > 0) {
    tokens_ = register_parameter("tokens", init.normal("tokens", {rows_, dim}, options_.init == "glra" ? 1.0 : 0.02));
  } else {
    // timm leaves its patch embedding, a convolution, as LibTorch makes it.
    const std::string scheme = options_.init == "vit" ? "mlpen" : options_.init;
    input_ = register_module("input",
                             std::make_shared<attention::Linear>(input.width, dim, true, scheme, init.child("input")));
  }
  if (options_.positions == "learned")
    positions_ =
        register_parameter("positions", options_.init == "mvts" ? init.uniform("positions", {length, dim}, -0.02, 0.02)
                                                                : init.normal("positions", {length, dim}, 0.02));
  if (options_.positions == "sinusoidal") positions_ = register_buffer("positions", sinusoidal_positions(length, dim));
  if (cls_vector_)
    cls_ = register_parameter("cls",
                              options_.init == "vit" ? init.normal("cls", {1, 1, dim}, 0.02) : at::zeros({1, 1, dim}));
  if (prefix_len_ > 0) prefix_ = register_parameter("prefix", init.normal("prefix", {1, prefix_len_, dim}, 0.02));
  embedding_dropout_ = kernels::Dropout(options_.dropout, dropout_stream_);
}

void EncoderBody::add_layers(const ModelRequest& request, const InitStream& init) {
  BlockOptions block{options_.dim,        options_.ff_dim, options_.dropout, options_.norm_epsilon,
                     options_.activation, options_.init,   options_.ff_chunk};
  attention::BuildContext context;
  context.model_dim = options_.dim;
  context.heads = options_.heads;
  context.head_dim = options_.head_dim;
  context.pinned_tokens = prefix_len_ + (options_.pooling.starts_with("cls_") ? 1 : 0);
  context.max_len = padded_len_ + (cls_vector_ ? 1 : 0) + prefix_len_;
  context.dropout = options_.attention_dropout;
  context.bias = options_.attention_bias;
  context.init_scheme = options_.init;
  context.dropout_stream = dropout_stream_;
  context.shared = shared_;
  for (int64_t layer = 0; layer < options_.layers; ++layer) {
    const std::string name = "layer" + std::to_string(layer);
    context.layer = layer;
    context.init = init.child(name).child("mixer");
    if (layer > 0)
      block.stochastic_depth =
          options_.stochastic_depth * static_cast<double>(layer) / static_cast<double>(options_.layers - 1);
    std::shared_ptr<attention::LayerBlock> built;
    if (request.attention.base->build_block) {
      built = request.attention.base->build_block(request.attention_options, context);
    } else {
      const auto mixer = attention::build_mixer(request.attention, request.attention_options, context);
      if (options_.norm == "post") {
        built = std::make_shared<PostNormBlock>(block, mixer, dropout_stream_, init.child(name));
      } else {
        const auto pre_norm = std::make_shared<PreNormBlock>(block, mixer, dropout_stream_, init.child(name));
        if (options_.reversible) reversible_.push_back(pre_norm);
        built = pre_norm;
      }
    }
    layers_.push_back(register_module(name, built));
  }
}

at::Tensor EncoderBody::embedded(at::Tensor ids, const at::Tensor& values, at::Tensor& valid) {
  const int64_t batch = valid.size(0), dim = options_.dim;
  if (options_.pooling == "cls_token") {
    ids = at::cat({at::full({batch, 1}, rows_ - 1, ids.options()), ids.narrow(1, 0, ids.size(1) - 1)}, 1);
    valid = at::cat({at::ones({batch, 1}, valid.options()), valid.narrow(1, 0, valid.size(1) - 1)}, 1);
  }
  const kernels::DropoutPlace drop = embedding_dropout_.place(is_training());
  if (tokens_.defined() && !cls_vector_ && prefix_len_ == 0) return kernels::embedding(tokens_, ids, positions_, drop);
  at::Tensor x = tokens_.defined() ? kernels::embedding(tokens_, ids, {}, {}) : input_->forward(values);
  if (options_.scale_input) x = x * std::sqrt(static_cast<double>(dim));
  if (cls_vector_) {
    x = at::cat({cls_.expand({batch, 1, dim}), x}, 1);
    // The CLS position's validity copies the first token's.
    valid = at::cat({valid.narrow(1, 0, 1), valid}, 1);
  }
  if (positions_.defined()) x = x + positions_.narrow(0, 0, x.size(1));
  if (prefix_len_ > 0) {
    x = at::cat({prefix_.expand({batch, prefix_len_, dim}), x}, 1);
    valid = at::cat({at::ones({batch, prefix_len_}, valid.options()), valid}, 1);
  }
  return drop(x);
}

at::Tensor EncoderBody::summary(const at::Tensor& ids, const at::Tensor& values, at::Tensor valid) {
  at::Tensor x = embedded(ids, values, valid);
  const SequenceMask mask{valid, false};
  attention::Carry carry;
  probe("embedding", x);
  if (options_.reversible) x = run_reversible(reversible_, reversible_parameters(), x, mask);
  else
    for (size_t i = 0; i < layers_.size(); ++i)
      x = probed("layer" + std::to_string(i), [&] { return layers_[i]->forward(x, mask, carry); });
  x = norm_->forward(x);
  probe("norm", x);
  if (options_.activate_output) x = output_dropout_(at::gelu(x), is_training());
  if (options_.mask_output) x = x * valid.unsqueeze(-1).to(x.scalar_type());
  const at::Tensor result = pooled(x, valid);
  probe("pooled", result);
  return result;
}

int64_t EncoderBody::summary_dim() const {
  return options_.pooling == "flatten" ? padded_len_ * options_.dim : options_.dim;
}

// [b, n, m] -> [b, summary_dim].
at::Tensor EncoderBody::pooled(const at::Tensor& x, const at::Tensor& valid) const {
  if (options_.pooling.starts_with("cls_")) return x.select(1, prefix_len_);
  const int64_t length = x.size(1) - prefix_len_;
  const at::Tensor own = x.narrow(1, prefix_len_, length);
  if (options_.pooling == "flatten") {
    XF_CHECK(length == padded_len_, UserError,
             "model.pooling=flatten needs sequences of the {} places that the model was built for, got {} (no length "
             "buckets)",
             padded_len_, length);
    return own.flatten(1);
  }
  if (options_.pooling == "mean_padded") return own.sum(1) / static_cast<double>(length);
  const at::Tensor factor = valid.narrow(1, prefix_len_, length).unsqueeze(-1).to(x.scalar_type());
  return (own * factor).sum(1) / factor.sum(1).clamp_min(1);
}

void EncoderBody::add_classifier(const std::vector<int64_t>& widths, const InitStream& init) {
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    const bool last = i + 2 == widths.size();
    const std::string name = last ? "classifier_out" : i == 0 ? "classifier_in" : "classifier_middle";
    auto map = std::make_shared<attention::Linear>(widths[i], widths[i + 1], true, options_.init, init.child(name));
    if (options_.init == "glra") {  // flax Dense: LeCun normal, zero bias
      const at::NoGradGuard no_grad;
      map->weight.copy_(init.child(name).truncated_normal("weight", {widths[i + 1], widths[i]},
                                                          1 / std::sqrt(static_cast<double>(widths[i]))));
    }
    classifier_.push_back(register_module(name, map));
  }
}

at::Tensor EncoderBody::classified(at::Tensor x) const {
  const at::ScalarType type = at::promote_types(classifier_.front()->weight.scalar_type(), at::kFloat);
  for (size_t i = 0; i < classifier_.size(); ++i) {
    if (i > 0) x = at::relu(x);
    x = classifier_[i]->forward(x);
  }
  x = x.to(type);
  probe("logits", x);
  return x;
}

attention::Cost EncoderBody::classifier_cost(int64_t rows) const {
  attention::Cost result;
  for (const auto& map : classifier_) {
    const double flops = 2.0 * static_cast<double>(rows * map->weight.numel());
    result += {flops, flops, 0};
  }
  return result;
}

attention::Cost EncoderBody::body_cost(int64_t sequences, int64_t length) const {
  attention::Cost result;
  const int64_t run = length + prefix_len_ + (cls_vector_ ? 1 : 0);
  for (const auto& layer : layers_) result += layer->cost(sequences, run);
  if (input_) {
    const double flops = 2.0 * static_cast<double>(sequences * length * input_->weight.numel());
    result += {flops, flops, 0};
  }
  return result;
}

at::Tensor EncoderBody::extra_loss() {
  at::Tensor total;
  for (const auto& layer : layers_) {
    const at::Tensor extra = layer->extra_loss();
    if (extra.defined()) total = total.defined() ? total + extra : extra;
  }
  return total;
}

void EncoderBody::after_step(int64_t step) {
  for (const auto& layer : layers_) layer->after_step(step);
}

// Of the layers, with what they share.
std::vector<at::Tensor> EncoderBody::reversible_parameters() const {
  std::vector<at::Tensor> result = shared_->parameters();
  for (const auto& layer : layers_)
    for (const at::Tensor& parameter : layer->parameters()) result.push_back(parameter);
  std::erase_if(result, [](const at::Tensor& parameter) { return !parameter.requires_grad(); });
  return result;
}

}  // namespace xformer::models
