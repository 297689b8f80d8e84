#include "models/stack.h"

#include <algorithm>

#include "models/reversible.h"
#include "tensor/probe.h"

namespace xformer::models {

namespace {

// Whether flags in host memory are all set: without a mask, attentions save what they would do about padding. Those of
// a device are not waited for.
bool closes_nothing(const at::Tensor& valid) {
  if (!valid.defined() || !valid.is_cpu() || !valid.is_contiguous()) return false;
  const bool* const flags = valid.const_data_ptr<bool>();
  return std::all_of(flags, flags + valid.numel(), [](bool flag) { return flag; });
}

}  // namespace

Stack::Stack(Model& owner, const StackOptions& options, const ModelRequest& request, int64_t max_len, int64_t pinned)
    : causal_(request.causal),
      padding_read_(options.padding_read || options.block.norm == NormKind::kBatchAll),
      padding_is_valid_(options.padding_is_valid),
      reads_padding_(padding_read_ || padding_is_valid_ || options.post_norm || options.reversible ||
                     !options.first_mixer_norm || options.block.norm != NormKind::kLayer ||
                     request.attention.base->build_block != nullptr),
      max_len_(max_len),
      decoding_length_(attention::decoding_length(request.attention, request.attention_options, max_len)),
      shared_(owner.shared()) {
  const InitStream init(request.seed);
  attention::BuildContext context;
  context.model_dim = options.block.dim;
  context.heads = options.heads;
  context.head_dim = options.head_dim;
  context.max_len = max_len;
  context.grid = request.input.columns;
  context.pinned_tokens = pinned;
  context.causal = causal_;
  context.dropout = options.attention_dropout;
  context.bias = options.attention_bias;
  context.init_scheme = options.attention_init;
  context.dropout_stream = owner.dropout_stream();
  context.shared = shared_;
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    const std::string name = "layer" + std::to_string(layer);
    context.layer = layer;
    context.init = init.child(name).child("mixer");
    BlockOptions block = options.block;
    block.stochastic_depth = 0;
    if (layer > 0)
      block.stochastic_depth =
          options.block.stochastic_depth * static_cast<double>(layer) / static_cast<double>(options.layers - 1);
    block.mixer_norm = layer > 0 || options.first_mixer_norm;
    if (options.reads_pinned_only && layer + 1 == options.layers) block.rows = pinned;
    std::shared_ptr<attention::LayerBlock> built;
    if (request.attention.base->build_block) {
      built = request.attention.base->build_block(request.attention_options, context);
    } else {
      const auto mixer =
          options.compression.length == 0
              ? attention::build_mixer(request.attention, request.attention_options, context)
              : build_compressed(options.compression, request.attention, request.attention_options, context);
      if (options.post_norm) {
        built = std::make_shared<PostNormBlock>(block, mixer, owner.dropout_stream(), init.child(name));
      } else {
        const auto pre_norm = std::make_shared<PreNormBlock>(block, mixer, owner.dropout_stream(), init.child(name));
        if (options.reversible) reversible_.push_back(pre_norm);
        built = pre_norm;
      }
    }
    layers_.push_back(owner.register_module(name, built));
  }
}

at::Tensor Stack::forward(at::Tensor x, const at::Tensor& valid, State& state) const {
  const bool widened = padding_is_valid_ && valid.defined();
  const at::Tensor places = widened ? valid.logical_or(valid.any(1, /*keepdim=*/true)) : valid;
  const SequenceMask mask{closes_nothing(places) ? at::Tensor() : places, causal_, /*cross=*/false, padding_read_};
  if (!reversible_.empty()) {
    std::vector<at::Tensor> parameters = shared_->parameters();
    for (const auto& layer : layers_)
      for (const at::Tensor& parameter : layer->parameters()) parameters.push_back(parameter);
    std::erase_if(parameters, [](const at::Tensor& parameter) { return !parameter.requires_grad(); });
    return run_reversible(reversible_, parameters, x, mask);
  }
  // What travels between layers ends here; what lasts has a name that init_state gave it.
  attention::Carry carry = state;
  for (size_t i = 0; i < layers_.size(); ++i)
    x = probed("layer" + std::to_string(i), [&] { return layers_[i]->forward(x, mask, carry); });
  for (auto& [name, tensor] : state) tensor = carry.at(name);
  return x;
}

at::Tensor Stack::decode(at::Tensor x, Decoded& so_far) const {
  XF_ASSERT(causal_, "a model that sees later places is read as a whole");
  const int64_t count = x.size(1);
  const attention::DecodingStep step{so_far.places, decoding_length_};
  so_far.layers.resize(layers_.size());
  // As a forward pass over all places would begin.
  attention::Carry carry = so_far.memory;
  at::Tensor second = x;  // the other stream of reversible layers
  for (size_t i = 0; i < layers_.size(); ++i) {
    attention::State& kept = so_far.layers[i];
    if (reversible_.empty()) {
      x = attention::decode(*layers_[i], x, step, carry, kept);
    } else {
      x = x + reversible_[i]->decode_mixed(second, step, carry, kept);
      second = second + reversible_[i]->fed(x);
    }
  }
  // Memory is of whole sequences.
  if (so_far.places + count == max_len_)
    for (auto& [name, tensor] : so_far.memory) tensor = carry.at(name);
  return reversible_.empty() ? x : (x + second) / 2;
}

attention::Cost Stack::cost(int64_t sequences, int64_t length) const {
  attention::Cost result;
  for (const auto& layer : layers_) result += layer->cost(sequences, length);
  return result;
}

}  // namespace xformer::models
