// FT-Transformer for tables (Gorishniy et al., "Revisiting Deep Learning Models for Tabular Data", 2021; their script
// bin/ft_transformer.py): every column becomes a token, a CLS token in front is read at the end.
//
//   numeric j: x_j W_j + b_j      code j: E[offset_j + code] + b_j      CLS: W_0
//   x += attention(LN(x)), without the norm in the first block;   x += W1 drop(ReGLU(W0 LN(x)));   ReGLU(a, b) = a
//   relu(b) output = Linear(ReLU(LN(x_CLS)))
// Columns are tokens in their order, numeric ones first; under mrs- the CLS token is its own group at every scale.
#include <ATen/Functions.h>

#include <cmath>
#include <numeric>

#include "models/block.h"
#include "models/model.h"
#include "tensor/probe.h"

namespace xformer::models::families::ft_transformer {

struct Options {
  int64_t dim = 192, heads = 8, layers = 3, ff_dim = 255;
  double attention_dropout = 0.2, ff_dropout = 0.1, residual_dropout = 0;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::dim, "dim", "width of a token", at_least(1))
          .add(&Options::heads, "heads", "attention heads; they divide dim", at_least(1))
          .add(&Options::layers, "layers", "blocks", at_least(1))
          .add(&Options::ff_dim, "ff_dim",
               "hidden width of the feed-forward part; 255 as the published runs, whose 4/3 of 192 was cut",
               at_least(1))
          .add(&Options::attention_dropout, "attention_dropout", "dropout of attention weights, where they exist",
               fraction_below_one())
          .add(&Options::ff_dropout, "ff_dropout", "dropout inside the feed-forward part", fraction_below_one())
          .add(&Options::residual_dropout, "residual_dropout", "dropout of both branches of a block",
               fraction_below_one());
  return kSchema;
}

class Block : public torch::nn::Module {
 public:
  Block(const Options& options, bool first, std::shared_ptr<attention::SequenceMixer> mixer,
        const std::shared_ptr<kernels::DropoutStream>& stream, const InitStream& init)
      : mixer_dropout_(options.residual_dropout, stream),
        ff_dropout_(options.ff_dropout, stream),
        branch_dropout_(options.residual_dropout, stream) {
    if (!first) mixer_norm_ = register_module("mixer_norm", std::make_shared<LayerNorm>(options.dim, 1e-5));
    mixer_ = register_module("mixer", std::move(mixer));
    ff_norm_ = register_module("ff_norm", std::make_shared<LayerNorm>(options.dim, 1e-5));
    const auto linear = [&](const char* name, int64_t in, int64_t out) {
      return register_module(name, std::make_shared<attention::Linear>(in, out, true, "mlpen", init.child(name)));
    };
    in_ = linear("ff_in", options.dim, 2 * options.ff_dim);
    out_ = linear("ff_out", options.ff_dim, options.dim);
  }

  // `rows`: how many of the first tokens go on; the last block needs CLS alone.
  at::Tensor forward(const at::Tensor& x, int64_t rows, const SequenceMask& mask, attention::Carry& carry) {
    const at::Tensor normed = mixer_norm_ ? mixer_norm_->forward(x) : x;
    const at::Tensor mixed = probed("mixer", [&] { return mixer_->forward(normed, mask, carry); }).narrow(1, 0, rows);
    const at::Tensor half = x.narrow(1, 0, rows) + mixer_dropout_(mixed, is_training());
    const std::vector<at::Tensor> parts = in_->forward(ff_norm_->forward(half)).chunk(2, -1);
    const at::Tensor hidden = ff_dropout_(parts[0] * at::relu(parts[1]), is_training());
    return half + branch_dropout_(out_->forward(hidden), is_training());
  }

  [[nodiscard]] attention::Cost cost(int64_t batch, int64_t length, int64_t rows) const {
    attention::Cost result = mixer_->cost(batch, length);
    const double flops = 2.0 * static_cast<double>(batch * rows * (in_->weight.numel() + out_->weight.numel()));
    result += {flops, flops, static_cast<double>(3 * batch * rows * out_->weight.size(1))};
    return result;
  }
  [[nodiscard]] const std::shared_ptr<attention::SequenceMixer>& mixer() const { return mixer_; }

 private:
  std::shared_ptr<LayerNorm> mixer_norm_, ff_norm_;
  std::shared_ptr<attention::SequenceMixer> mixer_;
  std::shared_ptr<attention::Linear> in_, out_;
  kernels::Dropout mixer_dropout_, ff_dropout_, branch_dropout_;
};

class FtTransformer : public Model {
 public:
  FtTransformer(const Options& options, const ModelRequest& request)
      : codes_(static_cast<int64_t>(request.input.categories.size())),
        numbers_(request.input.max_tokens - codes_),
        prefix_len_(attention::prefix_tokens(request.attention, request.attention_options)) {
    const InitStream init(request.seed);
    const int64_t dim = options.dim;
    dropout_stream_ = std::make_shared<kernels::DropoutStream>(request.seed);
    shared_ = register_module("shared", std::make_shared<attention::SharedObjects>());
    const double bound = 1 / std::sqrt(static_cast<double>(dim));
    const auto table = [&](const char* name, int64_t rows) {
      return register_parameter(name, init.uniform(name, {rows, dim}, -bound, bound));
    };
    weight_ = table("column_weight", numbers_ + 1);  // row 0 is CLS, which has no bias
    bias_ = table("column_bias", numbers_ + codes_);
    if (codes_ > 0) {
      const std::vector<int64_t>& sizes = request.input.categories;
      table_ = table("codes", std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
      std::vector<int64_t> offsets{0};
      for (size_t i = 0; i + 1 < sizes.size(); ++i) offsets.push_back(offsets.back() + sizes[i]);
      offsets_ = register_buffer("code_offsets", at::tensor(offsets, at::kLong));
    }
    if (prefix_len_ > 0) prefix_ = register_parameter("prefix", init.normal("prefix", {1, prefix_len_, dim}, 0.02));
    attention::BuildContext context;
    context.model_dim = dim;
    context.heads = options.heads;
    context.head_dim = dim / options.heads;
    context.max_len = tokens();
    context.pinned_tokens = prefix_len_ + 1;
    context.dropout = options.attention_dropout;
    context.init_scheme = "ft";
    context.dropout_stream = dropout_stream_;
    context.shared = shared_;
    for (int64_t layer = 0; layer < options.layers; ++layer) {
      const std::string name = "layer" + std::to_string(layer);
      context.layer = layer;
      context.init = init.child(name).child("mixer");
      const auto mixer = attention::build_mixer(request.attention, request.attention_options, context);
      layers_.push_back(register_module(
          name, std::make_shared<Block>(options, layer == 0, mixer, dropout_stream_, init.child(name))));
    }
    norm_ = register_module("norm", std::make_shared<LayerNorm>(dim, 1e-5));
    output_ = register_module("classifier_out", std::make_shared<attention::Linear>(dim, request.outputs, true, "mlpen",
                                                                                    init.child("classifier_out")));
  }

  at::Tensor forward(const ModelInput& input) override {
    at::Tensor x = embedded(input.values.squeeze(-1));
    probe("embedding", x);
    const SequenceMask mask;  // every row has every column
    attention::Carry carry;
    for (size_t i = 0; i < layers_.size(); ++i) {
      // Behind the last block only CLS is read.
      const int64_t rows = i + 1 < layers_.size() ? x.size(1) : prefix_len_ + 1;
      x = probed("layer" + std::to_string(i), [&] { return layers_[i]->forward(x, rows, mask, carry); });
    }
    const at::Tensor cls = at::relu(norm_->forward(x.select(1, prefix_len_)));
    probe("pooled", cls);
    const at::Tensor out = output_->forward(cls).to(at::promote_types(weight_.scalar_type(), at::kFloat));
    probe("logits", out);
    return out;
  }

  at::Tensor extra_loss() override {
    at::Tensor total;
    for (const auto& layer : layers_)
      if (const at::Tensor extra = layer->mixer()->extra_loss(); extra.defined())
        total = total.defined() ? total + extra : extra;
    return total;
  }
  void after_step(int64_t step) override {
    for (const auto& layer : layers_) layer->mixer()->after_step(step);
  }

  [[nodiscard]] attention::Cost cost(int64_t batch, int64_t) const override {
    attention::Cost result;
    for (size_t i = 0; i < layers_.size(); ++i)
      result += layers_[i]->cost(batch, tokens(), i + 1 < layers_.size() ? tokens() : prefix_len_ + 1);
    const double flops = 2.0 * static_cast<double>(batch * output_->weight.numel());
    result += {flops, flops, 0};
    return result;
  }
  [[nodiscard]] std::string backend() const override { return layers_.front()->mixer()->backend(); }

  // As both published implementations: none for the columns' table, the blocks' norms and all biases. The final norm's
  // weight decays, because their rule misses its name.
  [[nodiscard]] bool decays(const std::string& name) const override {
    const bool norm_of_block = name.find("_norm.") != std::string::npos;
    return !name.starts_with("column_") && name != "codes" && !name.ends_with("bias") && !norm_of_block;
  }

 private:
  [[nodiscard]] int64_t tokens() const { return prefix_len_ + 1 + numbers_ + codes_; }

  // rows [b, numbers + codes] -> [b, tokens, m].
  [[nodiscard]] at::Tensor embedded(const at::Tensor& rows) const {
    const int64_t batch = rows.size(0), dim = weight_.size(1);
    std::vector<at::Tensor> parts{weight_.narrow(0, 0, 1).unsqueeze(0).expand({batch, 1, dim})};
    if (numbers_ > 0)
      parts.push_back(rows.narrow(1, 0, numbers_).to(weight_.scalar_type()).unsqueeze(-1) *
                          weight_.narrow(0, 1, numbers_) +
                      bias_.narrow(0, 0, numbers_));
    if (codes_ > 0)
      parts.push_back(at::embedding(table_, rows.narrow(1, numbers_, codes_).to(at::kLong) + offsets_) +
                      bias_.narrow(0, numbers_, codes_));
    if (prefix_len_ > 0) parts.insert(parts.begin(), prefix_.expand({batch, prefix_len_, dim}));
    return at::cat(parts, 1);
  }

  int64_t codes_, numbers_, prefix_len_;
  std::shared_ptr<attention::SharedObjects> shared_;
  at::Tensor weight_, bias_, table_, offsets_, prefix_;
  std::vector<std::shared_ptr<Block>> layers_;
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<attention::Linear> output_;
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
    attention::check_buildable(request.attention, request.attention_options, options.heads, /*causal=*/false);
  };
  ft.build = [](const ModelRequest& request) {
    return std::make_shared<FtTransformer>(schema().read(request.model_options), request);
  };
  return {ft};
}

}  // namespace xformer::models::families::ft_transformer
