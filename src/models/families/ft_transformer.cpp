// FT-Transformer for tables (Gorishniy et al., "Revisiting Deep Learning Models for Tabular Data", 2021; their script
// bin/ft_transformer.py): every column becomes a token, a CLS token in front is read at the end.
//
//   numeric j: x_j W_j + b_j      code j: E[offset_j + code] + b_j      CLS: W_0
//   x += attention(LN(x)), without the norm in the first block
//   x += W1 drop(ReGLU(W0 LN(x))),   ReGLU(a, b) = a relu(b)
//   output = Linear(ReLU(LN(x_CLS)))
// Columns are tokens in their order, numeric ones first; under mrs- the CLS token is its own group at every scale.
// For tables of many columns keys and values are compressed (models/key_compression.h): the published model of Epsilon,
// 2,001 tokens, has 128 of each.
#include "models/transformer.h"

namespace xformer::models::families::ft_transformer {

struct Options {
  int64_t dim = 192, heads = 8, layers = 3, ff_dim = 255;
  double attention_dropout = 0.2, ff_dropout = 0.1, residual_dropout = 0;
  int64_t kv_compression = 0;
  std::string kv_sharing = "headwise";
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::dim, "dim", "width of a token", at_least(1))
          .add(&Options::heads, "heads", "attention heads; they divide dim", at_least(1))
          .add(&Options::layers, "layers", "blocks", between(1, 10000))
          .add(&Options::ff_dim, "ff_dim",
               "hidden width of the feed-forward part; 255 as the published runs, whose 4/3 of 192 was cut",
               at_least(1))
          .add(&Options::attention_dropout, "attention_dropout", "dropout of attention weights, where they exist",
               fraction_below_one())
          .add(&Options::ff_dropout, "ff_dropout", "dropout inside the feed-forward part", fraction_below_one())
          .add(&Options::residual_dropout, "residual_dropout", "dropout of both branches of a block",
               fraction_below_one())
          .add(&Options::kv_compression, "kv_compression",
               "keys and values that each layer's attention sees: learned mixtures of those of all tokens; 0: these "
               "themselves",
               at_least(0))
          .added(0)
          .add(&Options::kv_sharing, "kv_sharing",
               "who shares the mixtures, as the paper's code names it: headwise (per layer: one for keys, one for "
               "values), key-value (one per layer), layerwise (one for all layers)",
               one_of({"headwise", "key-value", "layerwise"}))
          .added("headwise");
  return kSchema;
}

Parts parts_of(const Options& options, const ModelRequest& request) {
  Parts parts;
  parts.embedding = {.dim = options.dim, .padded_len = request.input.max_tokens, .front = Front::kColumn};
  parts.stack = {.block = {.dim = options.dim,
                           .ff_dim = options.ff_dim,
                           .dropout = options.residual_dropout,
                           .activation = "reglu",
                           .ff_dropout = options.ff_dropout},
                 .layers = options.layers,
                 .heads = options.heads,
                 .head_dim = options.dim / options.heads,
                 .attention_dropout = options.attention_dropout,
                 .attention_init = "ft",
                 .compression = {options.kv_compression, options.kv_sharing},
                 .first_mixer_norm = false,
                 .reads_pinned_only = true};
  parts.readout = {.dim = options.dim, .pooling = "first", .activation = "relu"};
  return parts;
}

class FtTransformer : public Transformer {
 public:
  using Transformer::Transformer;

  // As both published implementations: none for the columns' table, the blocks' norms and all biases. The final norm's
  // weight decays, because their rule misses its name.
  [[nodiscard]] bool decays(const std::string& name) const override {
    const bool norm_of_block = name.find("_norm.") != std::string::npos;
    return !name.starts_with("column_") && name != "codes" && !name.ends_with("bias") && !norm_of_block;
  }
};

std::vector<FamilyDescriptor> describe() {
  FamilyDescriptor ft;
  ft.name = "ft-transformer";
  ft.aliases = {"ft"};
  ft.title = "FT-Transformer";
  ft.summary = "Tables: a token for every column, a CLS token in front, pre-norm blocks with ReGLU.";
  ft.options = schema().options();
  ft.padded_len = [](const Json&, int64_t max_tokens) { return max_tokens; };
  ft.check = [](const ModelRequest& request) {
    const Options options = schema().read(request.model_options);
    XF_CHECK(request.input.vocabulary == 0 && request.input.width == 1, UserError,
             "the ft-transformer family takes rows of a table; the task has {}",
             request.input.vocabulary > 0 ? "sequences of ids" : "series of several variables");
    XF_CHECK(options.dim % options.heads == 0, UserError, "model.heads: expected a divisor of model.dim = {}, got {}",
             options.dim, options.heads);
    XF_CHECK(!request.attention.base->build_block, UserError,
             "{} is a whole layer with a feed-forward part of its own; ft-transformer brings another",
             request.attention.name);
    XF_CHECK(!request.causal, UserError, "the ft-transformer family has no causal form: columns have no order");
    attention::check_buildable(request.attention, request.attention_options, options.heads, /*causal=*/false);
    check_compression({options.kv_compression, options.kv_sharing}, request.attention, request.input.max_tokens + 1);
  };
  ft.build = [](const ModelRequest& request) {
    return std::make_shared<FtTransformer>(parts_of(schema().read(request.model_options), request), request);
  };
  return {ft};
}

}  // namespace xformer::models::families::ft_transformer
