// The Transformer encoder for classification of the Long Range Arena, in both lineages (lra-recipe 4 and 5):
//
//   mlpen  x = tok[id] + pos, dropout, L pre-norm blocks, final norm, times mask, mean over all N_pad positions,
//          head Linear-ReLU-Linear                                        (mlpen/Nystromformer LRA/code/model.py)
//   glra   tok N(0,1), a zero-initialised CLS vector in front, sinusoidal positions, LayerNorm eps 1e-6,
//          tanh-GELU, output read at CLS        (google-research/long-range-arena lra_benchmarks/models/transformer)
#include <ATen/Functions.h>

#include <bit>
#include <cmath>

#include "kernels/embedding/embedding.h"
#include "models/block.h"
#include "models/model.h"
#include "models/reversible.h"
#include "tensor/probe.h"

namespace xformer::models::families::encoder {

struct Options {
  int64_t dim = 64, heads = 2, head_dim = 32, layers = 2, ff_dim = 128;
  double dropout = 0.1, attention_dropout = 0.1;
  std::string positions = "learned", pooling = "mean_padded";
  int64_t classifier_dim = 128, vocabulary_rows = 0;
  double norm_epsilon = 1e-5;
  std::string activation = "gelu", init = "mlpen";
  bool attention_bias = true, mask_output = true;
  std::string length_rule = "power_of_two";
  bool reversible = false;
  int64_t ff_chunk = 0;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::dim, "dim", "model width m, also of the embeddings", at_least(1))
          .add(&Options::heads, "heads", "attention heads", at_least(1))
          .add(&Options::head_dim, "head_dim", "width of one head", at_least(1))
          .add(&Options::layers, "layers", "blocks", at_least(1))
          .add(&Options::ff_dim, "ff_dim", "hidden width of the feed-forward part", at_least(1))
          .add(&Options::dropout, "dropout", "dropout of embeddings, residual branches and feed-forward",
               fraction_below_one())
          .add(&Options::attention_dropout, "attention_dropout", "dropout of attention weights, where they exist",
               fraction_below_one())
          .add(&Options::positions, "positions", "position embedding", one_of({"learned", "sinusoidal", "none"}))
          .add(&Options::pooling, "pooling",
               "mean_padded: sum over all positions / N_pad; mean_valid: over real tokens; cls_token: a reserved id in "
               "front "
               "(last position dropped); cls_vector: a learned vector in front",
               one_of({"mean_padded", "mean_valid", "cls_token", "cls_vector"}))
          .add(&Options::classifier_dim, "classifier_dim", "hidden width of the classification head", at_least(1))
          .add(&Options::vocabulary_rows, "vocabulary_rows", "rows of the token table; 0: as many as the task has ids",
               at_least(0))
          .add(&Options::norm_epsilon, "norm_epsilon", "epsilon of layer norm", above(0))
          .add(&Options::activation, "activation", "of the feed-forward part", one_of({"gelu", "gelu_tanh"}))
          .add(&Options::init, "init", "initial values: mlpen (LibTorch's defaults) or glra (Xavier, LeCun)",
               one_of({"mlpen", "glra"}))
          .add(&Options::attention_bias, "attention_bias", "biases of the q, k, v and output maps")
          .add(&Options::mask_output, "mask_output", "zero padded positions before pooling")
          .add(&Options::length_rule, "length_rule",
               "pad batches to the next power of two of the longest sequence, or exactly to it",
               one_of({"power_of_two", "exact"}))
          .add(
              &Options::reversible, "reversible",
              "reversible residuals: layers are computed again in the backward pass instead of kept (another function: "
              "two streams, their mean at the end)")
          .add(&Options::ff_chunk, "ff_chunk", "positions that the feed-forward part takes at once; 0: all",
               at_least(0));
  return kSchema;
}

int64_t padded_len(const Options& options, int64_t max_tokens) {
  if (options.length_rule == "exact") return max_tokens;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(max_tokens)));
}

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

class Encoder : public Model {
 public:
  Encoder(const Options& options, const ModelRequest& request)
      : options_(options),
        rows_(options.vocabulary_rows > 0 ? options.vocabulary_rows
                                          : request.input.vocabulary + (options.pooling == "cls_token")),
        prefix_len_(attention::prefix_tokens(request.attention, request.attention_options)),
        cls_vector_(options.pooling == "cls_vector") {
    const InitStream init(request.seed);
    dropout_stream_ = std::make_shared<kernels::DropoutStream>(request.seed);
    shared_ = register_module("shared", std::make_shared<attention::SharedObjects>());
    const bool glra = options.init == "glra";
    const int64_t length = padded_len(options, request.input.max_tokens) + (cls_vector_ ? 1 : 0);
    tokens_ = register_parameter("tokens", init.normal("tokens", {rows_, options.dim}, glra ? 1.0 : 0.02));
    if (options.positions == "learned")
      positions_ = register_parameter("positions", init.normal("positions", {length, options.dim}, 0.02));
    if (options.positions == "sinusoidal")
      positions_ = register_buffer("positions", sinusoidal_positions(length, options.dim));
    if (cls_vector_) cls_ = register_parameter("cls", at::zeros({1, 1, options.dim}));
    if (prefix_len_ > 0)
      prefix_ = register_parameter("prefix", init.normal("prefix", {1, prefix_len_, options.dim}, 0.02));
    embedding_dropout_ = kernels::Dropout(options.dropout, dropout_stream_);

    const BlockOptions block{options.dim,        options.ff_dim, options.dropout, options.norm_epsilon,
                             options.activation, options.init,   options.ff_chunk};
    attention::BuildContext context;
    context.model_dim = options.dim;
    context.heads = options.heads;
    context.head_dim = options.head_dim;
    context.pinned_tokens = prefix_len_ + (options.pooling.starts_with("cls_") ? 1 : 0);
    context.max_len = length + prefix_len_;
    context.dropout = options.attention_dropout;
    context.bias = options.attention_bias;
    context.init_scheme = options.init;
    context.dropout_stream = dropout_stream_;
    context.shared = shared_;
    for (int64_t layer = 0; layer < options.layers; ++layer) {
      const std::string name = "layer" + std::to_string(layer);
      context.layer = layer;
      context.init = init.child(name).child("mixer");
      std::shared_ptr<attention::LayerBlock> built;
      if (request.attention.base->build_block) {
        built = request.attention.base->build_block(request.attention_options, context);
      } else {
        const auto mixer = attention::build_mixer(request.attention, request.attention_options, context);
        const auto pre_norm = std::make_shared<PreNormBlock>(block, mixer, dropout_stream_, init.child(name));
        if (options.reversible) reversible_.push_back(pre_norm);
        built = pre_norm;
      }
      layers_.push_back(register_module(name, built));
    }
    norm_ = register_module("norm", std::make_shared<LayerNorm>(options.dim, options.norm_epsilon));
    hidden_ = register_module("classifier_in",
                              classifier_map(options.dim, options.classifier_dim, init.child("classifier_in")));
    output_ = register_module(
        "classifier_out", classifier_map(options.classifier_dim, request.output.classes, init.child("classifier_out")));
  }

  at::Tensor forward(const ModelInput& input) override {
    at::Tensor ids = input.tokens, valid = input.key_valid;
    const int64_t batch = ids.size(0);
    if (options_.pooling == "cls_token") {
      ids = at::cat({at::full({batch, 1}, rows_ - 1, ids.options()), ids.narrow(1, 0, ids.size(1) - 1)}, 1);
      valid = at::cat({at::ones({batch, 1}, valid.options()), valid.narrow(1, 0, valid.size(1) - 1)}, 1);
    }
    const kernels::DropoutPlace drop(embedding_dropout_, is_training());
    at::Tensor x;
    if (!cls_vector_ && prefix_len_ == 0) {
      x = kernels::embedding(tokens_, ids, positions_, drop);
    } else {
      x = kernels::embedding(tokens_, ids, {}, {});
      if (cls_vector_) {
        x = at::cat({cls_.expand({batch, 1, options_.dim}), x}, 1);
        // The CLS position's validity copies the first token's.
        valid = at::cat({valid.narrow(1, 0, 1), valid}, 1);
      }
      if (positions_.defined()) x = x + positions_.narrow(0, 0, x.size(1));
      if (prefix_len_ > 0) {
        x = at::cat({prefix_.expand({batch, prefix_len_, options_.dim}), x}, 1);
        valid = at::cat({at::ones({batch, prefix_len_}, valid.options()), valid}, 1);
      }
      x = drop(x);
    }
    const SequenceMask mask{valid, false};
    attention::Carry carry;
    probe("embedding", x);
    if (options_.reversible) x = run_reversible(reversible_, reversible_parameters(), x, mask);
    else
      for (size_t i = 0; i < layers_.size(); ++i)
        x = probed("layer" + std::to_string(i), [&] { return layers_[i]->forward(x, mask, carry); });
    x = norm_->forward(x);
    probe("norm", x);
    if (options_.mask_output) x = x * valid.unsqueeze(-1).to(x.scalar_type());
    const at::Tensor summary = pooled(x, valid);  // [b,m]
    probe("pooled", summary);
    const at::Tensor logits =
        output_->forward(at::relu(hidden_->forward(summary))).to(at::promote_types(tokens_.scalar_type(), at::kFloat));
    probe("logits", logits);
    return logits;
  }

  at::Tensor extra_loss() override {
    at::Tensor total;
    for (const auto& layer : layers_) {
      const at::Tensor extra = layer->extra_loss();
      if (extra.defined()) total = total.defined() ? total + extra : extra;
    }
    return total;
  }

  void after_step(int64_t step) override {
    for (const auto& layer : layers_) layer->after_step(step);
  }

  [[nodiscard]] attention::Cost cost(int64_t batch, int64_t length) const override {
    attention::Cost result;
    const int64_t run = length + prefix_len_ + (cls_vector_ ? 1 : 0);
    for (const auto& layer : layers_) result += layer->cost(batch, run);
    for (const auto& map : {hidden_, output_}) {
      const double flops = 2.0 * static_cast<double>(batch * map->weight.numel());
      result += {flops, flops, 0};
    }
    return result;
  }

  [[nodiscard]] std::string backend() const override { return layers_.front()->backend(); }

 private:
  [[nodiscard]] std::shared_ptr<attention::Linear> classifier_map(int64_t in, int64_t out,
                                                                  const InitStream& init) const {
    auto map = std::make_shared<attention::Linear>(in, out, true, options_.init, init);
    if (options_.init == "glra") {  // flax Dense: LeCun normal, zero bias
      const at::NoGradGuard no_grad;
      map->weight.copy_(init.truncated_normal("weight", {out, in}, 1 / std::sqrt(static_cast<double>(in))));
    }
    return map;
  }

  // [b, n, m] -> [b, m].
  [[nodiscard]] at::Tensor pooled(const at::Tensor& x, const at::Tensor& valid) const {
    if (options_.pooling.starts_with("cls_")) return x.select(1, prefix_len_);
    const int64_t length = x.size(1) - prefix_len_;
    const at::Tensor own = x.narrow(1, prefix_len_, length);
    if (options_.pooling == "mean_padded") return own.sum(1) / static_cast<double>(length);
    const at::Tensor factor = valid.narrow(1, prefix_len_, length).unsqueeze(-1).to(x.scalar_type());
    return (own * factor).sum(1) / factor.sum(1).clamp_min(1);
  }

  // Of the layers, with what they share.
  [[nodiscard]] std::vector<at::Tensor> reversible_parameters() const {
    std::vector<at::Tensor> result = shared_->parameters();
    for (const auto& layer : layers_)
      for (const at::Tensor& parameter : layer->parameters()) result.push_back(parameter);
    std::erase_if(result, [](const at::Tensor& parameter) { return !parameter.requires_grad(); });
    return result;
  }

  Options options_;
  int64_t rows_, prefix_len_;
  bool cls_vector_;
  std::shared_ptr<attention::SharedObjects> shared_;
  at::Tensor tokens_, positions_, cls_, prefix_;
  kernels::Dropout embedding_dropout_;
  std::vector<std::shared_ptr<attention::LayerBlock>> layers_;
  std::vector<std::shared_ptr<PreNormBlock>> reversible_;  // the same layers, when they are run that way
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<attention::Linear> hidden_, output_;
};

void check(const ModelRequest& request) {
  const Options options = schema().read(request.model_options);
  const int64_t needed = request.input.vocabulary + (options.pooling == "cls_token" ? 1 : 0);
  XF_CHECK(options.vocabulary_rows == 0 || options.vocabulary_rows >= needed, UserError,
           "model.vocabulary_rows: the task has {} ids, expected at least as many rows, got {}", needed,
           options.vocabulary_rows);
  XF_CHECK(options.positions != "sinusoidal" || options.dim % 2 == 0, UserError,
           "model.dim: sinusoidal positions need an even width, got {}", options.dim);
  XF_CHECK(!options.reversible || !request.attention.base->build_block, UserError,
           "model.reversible: {} is a whole layer with residuals of its own", request.attention.name);
  const attention::Traits traits = request.attention.traits();
  XF_CHECK(!options.reversible || !traits.carries, UserError,
           "model.reversible: {} hands a state from layer to layer, which cannot be computed backwards",
           request.attention.name);
  XF_CHECK(
      !options.reversible || !traits.library_dropout || options.attention_dropout == 0, UserError,
      "model.reversible: {} drops weights by LibTorch's generator, which would drop others when layers are computed "
      "again; set model.attention_dropout=0 or take softmax",
      request.attention.name);
  attention::check_buildable(request.attention, request.attention_options, options.heads, /*causal=*/false);
}

std::vector<FamilyDescriptor> describe() {
  FamilyDescriptor encoder;
  encoder.name = "encoder";
  encoder.title = "Transformer encoder";
  encoder.summary = "Token embedding, blocks of attention and feed-forward, pooling, two-layer classification head.";
  encoder.options = schema().options();
  encoder.padded_len = [](const Json& options, int64_t max_tokens) {
    return padded_len(schema().read(options), max_tokens);
  };
  encoder.check = check;
  encoder.build = [](const ModelRequest& request) {
    return std::make_shared<Encoder>(schema().read(request.model_options), request);
  };
  return {encoder};
}

}  // namespace xformer::models::families::encoder
