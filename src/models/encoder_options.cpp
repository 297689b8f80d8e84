#include "models/encoder_options.h"

#include <bit>

namespace xformer::models {

const Schema<EncoderOptions>& encoder_schema() {
  using Options = EncoderOptions;
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::dim, "dim", "model width m, also of the embeddings", at_least(1))
          .add(&Options::heads, "heads", "attention heads", at_least(1))
          .add(&Options::head_dim, "head_dim", "width of one head", at_least(1))
          .add(&Options::layers, "layers", "blocks", between(1, 10000))
          .add(&Options::ff_dim, "ff_dim", "hidden width of the feed-forward part", at_least(1))
          .add(&Options::dropout, "dropout", "dropout of embeddings, residual branches and feed-forward",
               fraction_below_one())
          .add(&Options::attention_dropout, "attention_dropout", "dropout of attention weights, where they exist",
               fraction_below_one())
          .add(&Options::positions, "positions", "position embedding", one_of({"learned", "sinusoidal", "none"}))
          .add(&Options::pooling, "pooling",
               "mean_padded: sum over all positions / N_pad; mean_valid: over real tokens; cls_token: a reserved id in "
               "front (last position dropped); cls_vector: a learned vector in front; flatten: all positions side by "
               "side, into a single linear map; prefix_max: mean of the token that the attention puts in front and the "
               "largest numbers of real tokens (star-transformer)",
               one_of({"mean_padded", "mean_valid", "cls_token", "cls_vector", "flatten", "prefix_max"}))
          .add(&Options::classifier_dim, "classifier_dim",
               "hidden width of the classification head; 0: none, one linear map", at_least(0))
          .add(&Options::vocabulary_rows, "vocabulary_rows", "rows of the token table; 0: as many as the task has ids",
               at_least(0))
          .add(&Options::norm_epsilon, "norm_epsilon", "epsilon of layer or batch norm", above(0))
          .add(
              &Options::norm, "norm",
              "pre: each part of a layer takes the norm of its input; post: norm of the sum behind it; batch: as post, "
              "with batch norm, and no final norm",
              one_of({"pre", "post", "batch"}))
          .add(&Options::norm_places, "norm_places",
               "places that batch norm takes its mean and variance over: valid ones, or all, padding included",
               one_of({"valid", "all"}))
          .added("valid")
          .add(&Options::key_places, "key_places",
               "places that attention reads: valid ones, or all, padding included (of an example that has any valid "
               "one)",
               one_of({"valid", "all"}))
          .added("valid")
          .add(&Options::activation, "activation", "of the feed-forward part", one_of({"gelu", "gelu_tanh", "relu"}))
          .add(&Options::init, "init",
               "initial values: mlpen (LibTorch's defaults), glra (Xavier, LeCun), mvts (mlpen with uniform positions) "
               "or vit (N(0, 0.02), no biases)",
               one_of({"mlpen", "glra", "mvts", "vit"}))
          .add(&Options::attention_bias, "attention_bias", "biases of the q, k, v and output maps")
          .add(&Options::mask_output, "mask_output", "zero padded positions before pooling")
          .add(&Options::scale_input, "scale_input", "multiply the embedding by the root of its width")
          .add(&Options::activate_output, "activate_output", "GELU and dropout behind the final norm")
          .add(&Options::length_rule, "length_rule",
               "pad batches to the next power of two of the longest sequence, or exactly to it",
               one_of({"power_of_two", "exact"}))
          .add(&Options::reversible, "reversible",
               "reversible residuals: layers are computed again in the backward pass instead of kept (another "
               "function: two streams, their mean at the end)")
          .add(&Options::ff_chunk, "ff_chunk", "positions that the feed-forward part takes at once; 0: all",
               at_least(0))
          .add(&Options::causal, "causal",
               "no place sees a later one, though the task would let it; any attention with a causal form")
          .added(false);
  return kSchema;
}

int64_t encoder_padded_len(const EncoderOptions& options, int64_t max_tokens) {
  if (options.length_rule == "exact") return max_tokens;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(max_tokens)));
}

void check_encoder(const EncoderOptions& options, const ModelRequest& request) {
  const int64_t vocabulary = request.input.vocabulary - (request.input.masks ? 1 : 0);
  const int64_t needed = vocabulary + (options.pooling == "cls_token" ? 1 : 0);
  XF_CHECK(options.vocabulary_rows == 0 || options.vocabulary_rows >= needed, UserError,
           "model.vocabulary_rows: the task has {} ids, expected at least as many rows, got {}", needed,
           options.vocabulary_rows);
  XF_CHECK(vocabulary > 0 || options.pooling != "cls_token", UserError,
           "model.pooling: cls_token is an id, and the task's places hold numbers; cls_vector puts a learned vector in "
           "front");
  XF_CHECK(options.positions != "sinusoidal" || options.dim % 2 == 0, UserError,
           "model.dim: sinusoidal positions need an even width, got {}", options.dim);
  XF_CHECK(
      options.pooling != "prefix_max" || attention::prefix_tokens(request.attention, request.attention_options) > 0,
      UserError, "model.pooling: prefix_max reads a token that the attention puts in front, and {} puts none there",
      request.attention.name);
  XF_CHECK(!request.causal || !options.pooling.starts_with("cls_"), UserError,
           "model.pooling: what stands in front of a causal model's sequence sees none of it; expected mean_padded, "
           "mean_valid or flatten, got {}",
           options.pooling);
  XF_CHECK(options.key_places == "valid" || options.norm != "batch" || options.norm_places == "all", UserError,
           "model.key_places: attention that reads padding needs a norm that counts it; set model.norm_places=all");
  const std::string& name = request.attention.name;
  const bool block = static_cast<bool>(request.attention.base->build_block);
  // Whole layers without norms say themselves whether one stands behind the last of them.
  XF_CHECK(!block || options.norm == "pre" || request.attention_options.contains("final_norm"), UserError,
           "model.norm: {} is a whole layer with norms of its own; expected pre, got {}", name, options.norm);
  XF_CHECK(!options.reversible || !block, UserError, "model.reversible: {} is a whole layer with residuals of its own",
           name);
  XF_CHECK(!options.reversible || options.norm == "pre", UserError, "model.reversible needs model.norm=pre");
  XF_CHECK(options.stochastic_depth == 0 || !block, UserError,
           "model.stochastic_depth: {} is a whole layer with residuals of its own; set 0", name);
  const attention::Traits traits = request.attention.traits();
  XF_CHECK(!options.reversible || !traits.carries, UserError,
           "model.reversible: {} hands a state from layer to layer, which cannot be computed backwards", name);
  XF_CHECK(
      !options.reversible || !traits.library_dropout || options.attention_dropout == 0, UserError,
      "model.reversible: {} drops weights by LibTorch's generator, which would drop others when layers are computed "
      "again; set model.attention_dropout=0 or take softmax",
      name);
  XF_CHECK(!options.reversible || request.attention_options.value("commitment", 0.0) == 0, UserError,
           "model.reversible: {} asks for a loss of queries and keys, and reversible layers keep no graph of theirs; "
           "set attention.commitment=0",
           name);
  attention::check_buildable(request.attention, request.attention_options, options.heads, request.causal);
}

Parts encoder_parts(const EncoderOptions& options, const ModelRequest& request) {
  const int64_t padded_len = encoder_padded_len(options, request.input.max_tokens);
  const bool first = options.pooling.starts_with("cls_");
  Parts parts;
  parts.embedding = {.dim = options.dim,
                     .padded_len = padded_len,
                     .front = options.pooling == "cls_token" ? Front::kToken
                              : first                        ? Front::kVector
                                                             : Front::kNone,
                     .positions = options.positions,
                     .init = options.init,
                     .vocabulary_rows = options.vocabulary_rows,
                     .scale_input = options.scale_input,
                     .dropout = options.dropout};
  parts.stack = {.block = {options.dim, options.ff_dim, options.dropout, options.norm_epsilon, options.activation,
                           options.init, options.ff_chunk, options.stochastic_depth},
                 .layers = options.layers,
                 .heads = options.heads,
                 .head_dim = options.head_dim,
                 .attention_dropout = options.attention_dropout,
                 .attention_bias = options.attention_bias,
                 .attention_init = options.init,
                 .post_norm = options.norm != "pre",
                 .reversible = options.reversible,
                 .padding_is_valid = options.key_places == "all"};
  if (options.norm == "batch")
    parts.stack.block.norm = options.norm_places == "all" ? NormKind::kBatchAll : NormKind::kBatch;
  parts.readout = {.dim = options.dim,
                   .pooling = first ? "first" : options.pooling,
                   .padded_len = padded_len,
                   .norm = request.attention_options.value("final_norm", options.norm != "batch"),
                   .norm_epsilon = options.norm_epsilon,
                   .activation = options.activate_output ? "gelu" : "none",
                   .dropout = options.dropout,
                   .mask_output = options.mask_output,
                   .init = options.init};
  if (options.pooling != "flatten" && options.classifier_dim > 0) parts.readout.hidden = {options.classifier_dim};
  return parts;
}

}  // namespace xformer::models
