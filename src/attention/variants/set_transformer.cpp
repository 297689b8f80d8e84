// Set Transformer: Lee, Lee, Kim, Kosiorek, Choi, Teh, "Set Transformer: A Framework for Attention-based
// Permutation-Invariant Neural Networks", ICML 2019, sections 3.1 and 3.2. m inducing points I gather the sequence, and
// every token reads what they gathered:
//   set-isab      a whole layer, equations 9 and 10: H = MAB(I, X), out = MAB(X, H), with I [m, model width]
//   set-induced   that attention alone, between projections (attention-more 3): with I [m, d] of each head
//                 A = softmax(I K^T / sqrt(d)),   O = softmax(Q (A K)^T / sqrt(d)) A V
// MAB(X, Y) by `mab`, W_* with biases, c the width of all heads together:
//   code        O = Q + softmax(Q K^T / sqrt(c)) V by heads, Q = X W_q;   out = O + relu(O W_o)
//   code-norm   a layer norm behind both sums: the authors' code with its switch `ln`, which is off by default
//   paper       H = LN(X + multihead(X, Y, Y));   out = LN(H + relu(H W_f)), multihead with 1 / sqrt(c / h) and an
//   output map
// Padded tokens are no keys for the inducing points, and zero behind the layer. A model of sets alone would have no
// positions; in a sequence the embedding adds them.
#include <cmath>

#include "attention/descriptor.h"
#include "attention/multi_head.h"
#include "attention/shared/full_precision.h"
#include "kernels/attention/attention.h"
#include "kernels/residual_norm/residual_norm.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::set_transformer {

constexpr int64_t kDeepest = 2;  // layers without norms before a warning (attention-more 3)

struct InducedOptions {
  int64_t inducing = 32;
};

struct BlockOptions : InducedOptions {
  std::string mab = "code";
};

kernels::AttentionOptions attention_options(double width, const at::Tensor& key_valid, const at::Tensor& query_valid,
                                            const kernels::DropoutPlace& dropout) {
  kernels::AttentionOptions options;
  options.scale = 1 / std::sqrt(width);
  options.mask.key_valid = key_valid;
  options.query_valid = query_valid;
  options.dropout = dropout;
  return options;
}

class InducedCore : public AttentionCore {
 public:
  InducedCore(const InducedOptions& options, const BuildContext& context)
      : points_(options.inducing), gather_dropout_(context.make_dropout()), dropout_(context.make_dropout()) {
    inducing_ =
        register_parameter("inducing", context.init.normal("inducing", {context.heads, points_, context.head_dim},
                                                           1 / std::sqrt(static_cast<double>(context.head_dim))));
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    const int64_t b = q.size(0), d = q.size(-1);
    const auto width = static_cast<double>(d);
    at::Tensor gathered;  // A [K, V] [b,h,m,2d]
    {
      const ProbeScope scope("gather");
      gathered = kernels::attention(inducing_.unsqueeze(0).expand({b, -1, -1, -1}), k, at::cat({k, v}, -1),
                                    attention_options(width, mask.key_valid, {}, gather_dropout_.place(is_training())));
    }
    probe("gathered", gathered);
    return kernels::attention(q, gathered.narrow(-1, 0, d), gathered.narrow(-1, d, v.size(-1)),
                              attention_options(width, {}, mask.query_valid(q.size(2)), dropout_.place(is_training())));
  }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    const auto m = static_cast<double>(points_);
    const double flops =
        2 * z * m * d * (3 * static_cast<double>(shape.key_len) + 2 * static_cast<double>(shape.query_len));
    return {flops, flops, z * d * static_cast<double>(2 * shape.query_len + 2 * shape.key_len)};
  }

  [[nodiscard]] bool takes_bf16() const override { return true; }

 private:
  int64_t points_;
  kernels::Dropout gather_dropout_, dropout_;
  at::Tensor inducing_;  // I [h, m, d]
};

// MAB(X, Y).
class AttentionBlock : public torch::nn::Module {
 public:
  AttentionBlock(const std::string& form, const BuildContext& context)
      : heads_(context.heads), width_(context.model_dim), paper_(form == "paper"), dropout_(context.make_dropout()) {
    const auto linear = [&](const char* name) {
      return register_module(
          name, std::make_shared<Linear>(width_, width_, /*bias=*/true, context.init_scheme, context.init.child(name)));
    };
    query_ = linear("query"), key_ = linear("key"), value_ = linear("value");
    out_ = linear("out");
    if (paper_) ff_ = linear("ff");
    if (form == "code") return;
    for (const std::string name : {"norm", "ff_norm"})
      norms_.push_back({register_parameter(name + "_weight", at::ones({width_})),
                        register_parameter(name + "_bias", at::zeros({width_}))});
  }

  // x [b or 1,q,m], y [b,k,m] -> [b,q,m]. `keys`: which of y are valid, undefined: all.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y, const at::Tensor& keys) const {
    const at::Tensor projected = query_->forward(x);  // Q
    const std::vector<at::Tensor> rows = kernels::linear(y, {key_->map(), value_->map()});
    at::Tensor mixed;  // [b,q,m]
    {
      const FullPrecision full(x.device().type(), /*takes_bf16=*/true);
      const auto split = [&](const at::Tensor& row) {
        return full(row).view({row.size(0), row.size(1), heads_, width_ / heads_}).transpose(1, 2);
      };
      const at::Tensor q = split(projected).expand({y.size(0), -1, -1, -1}), k = split(rows[0]), v = split(rows[1]);
      probe("q", q), probe("k", k), probe("v", v);
      const auto width = static_cast<double>(paper_ ? width_ / heads_ : width_);
      const at::Tensor heads =
          kernels::attention(q, k, v, attention_options(width, keys, {}, dropout_.place(is_training())));
      probe("mixed", heads);
      mixed = heads.transpose(1, 2).reshape({y.size(0), x.size(1), width_});
    }
    const auto sum = [&](const at::Tensor& a, const at::Tensor& b, size_t norm) {
      return norms_.empty() ? a + b : kernels::residual_norm(a + b, {}, {}, norms_[norm]).normed;
    };
    const at::Tensor half = paper_ ? sum(x, out_->forward(mixed), 0) : sum(projected, mixed, 0);
    return sum(half, at::relu((paper_ ? ff_ : out_)->forward(half)), 1);
  }

  // Maps of x are made once for all samples where x is the same for all.
  [[nodiscard]] double flops(double batch, double x_batch, double q, double k) const {
    const auto m = static_cast<double>(width_);
    return 2 * m * m * (x_batch * q + batch * (2 * k + (paper_ ? 2 : 1) * q)) + 4 * batch * q * k * m;
  }

 private:
  int64_t heads_, width_;
  bool paper_;
  kernels::Dropout dropout_;
  std::shared_ptr<Linear> query_, key_, value_, out_, ff_;
  std::vector<kernels::NormWeights> norms_;  // behind attention and behind the feed-forward part; none: no norm
};

class InducedBlock : public LayerBlock {
 public:
  InducedBlock(const BlockOptions& options, const BuildContext& context) : points_(options.inducing) {
    const int64_t inner = context.heads * context.head_dim;
    XF_CHECK(inner == context.model_dim, UserError,
             "set-isab adds what its heads give to its input: expected model.heads times model.head_dim to be the "
             "model's width {}, got {}",
             context.model_dim, inner);
    width_ = context.model_dim;
    // Xavier uniform, whose fans LibTorch takes from [1, m, width].
    const double bound = std::sqrt(6.0 / static_cast<double>((points_ + 1) * width_));
    inducing_ = register_parameter("inducing", context.init.uniform("inducing", {1, points_, width_}, -bound, bound));
    const auto block = [&](const char* name) {
      BuildContext own = context;
      own.init = context.init.child(name);
      return register_module(name, std::make_shared<AttentionBlock>(options.mab, own));
    };
    gather_ = block("gather");
    spread_ = block("spread");
  }

  at::Tensor forward(const at::Tensor& x, const SequenceMask& mask, Carry&) override {
    XF_ASSERT(!mask.causal, "set-isab has no causal form");
    const at::Tensor gathered = probed("gather", [&] { return gather_->forward(inducing_, x, mask.key_valid); });
    const at::Tensor out = spread_->forward(x, gathered, {});
    return mask.all_valid() ? out : at::where(mask.key_valid.unsqueeze(-1), out, 0);
  }

  [[nodiscard]] Cost cost(int64_t batch, int64_t length) const override {
    const double b = static_cast<double>(batch), n = static_cast<double>(length), m = static_cast<double>(points_);
    const double flops = gather_->flops(b, 1, m, n) + spread_->flops(b, b, n, m);
    return {flops, flops, 4 * b * n * static_cast<double>(width_)};
  }

  [[nodiscard]] std::string backend() const override { return ""; }

 private:
  int64_t points_, width_ = 0;
  at::Tensor inducing_;  // I [1, m, width]
  std::shared_ptr<AttentionBlock> gather_, spread_;
};

const Schema<InducedOptions>& induced_schema() {
  static const Schema<InducedOptions> kSchema =
      Schema<InducedOptions>().add(&InducedOptions::inducing, "inducing",
                                   "inducing points, which gather the sequence for all tokens (m)", at_least(1));
  return kSchema;
}

const Schema<BlockOptions>& block_schema() {
  static const Schema<BlockOptions> kSchema =
      Schema<BlockOptions>()
          .include(induced_schema())
          .add(
              &BlockOptions::mab, "mab",
              "the block around attention: code (a residual of the mapped queries, one map behind it), code-norm (with "
              "layer norms), paper (a residual of the input, output map, feed-forward part, layer norms)",
              one_of({"code", "code-norm", "paper"}));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor induced;
  induced.name = "set-induced";
  induced.title = "Induced set attention";
  induced.paper =
      "Lee, Lee, Kim, Kosiorek, Choi, Teh: Set Transformer: A Framework for Attention-based Permutation-Invariant "
      "Neural Networks, 2019 (its attention alone)";
  induced.method_class = "M";
  induced.summary = "A few learned queries gather keys and values; every token attends to what they gathered.";
  induced.complexity = Complexity::kLinear;
  induced.traits = {.cross_ok = true};
  induced.appended_padding = always_exact();
  induced.options = induced_schema().options();
  induced.tensors = {{"inducing", "I: queries that gather keys and values, of each head [h, m, d]"}};
  induced.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<InducedCore>(induced_schema().read(options), context);
  };

  Descriptor block = induced;
  block.name = "set-isab";
  block.aliases = {"isab"};
  block.title = "Set Transformer (ISAB)";
  block.paper =
      "Lee, Lee, Kim, Kosiorek, Choi, Teh: Set Transformer: A Framework for Attention-based Permutation-Invariant "
      "Neural Networks, 2019";
  block.summary = "A whole layer: inducing points attend to the tokens, and the tokens to what the points became.";
  block.traits = {};
  block.options = block_schema().options();
  block.tensors = {{"inducing", "I: points that attend to the sequence [1, m, width]"}};
  const auto add_stage = [&](const std::string& stage, const std::string& what) {
    const auto add = [&](const std::string& name, const std::string& meaning) {
      block.tensors.push_back({stage + "." + name, meaning + ", " + what});
    };
    for (const std::string part : {"query", "key", "value", "out"}) {
      add(part + ".weight", "W of " + part + " [width, width]");
      add(part + ".bias", "of " + part + " [width]");
    }
    add("ff.weight", "W of the feed-forward part, with mab=paper [width, width]");
    add("ff.bias", "of the feed-forward part, with mab=paper [width]");
    add("norm_weight", "of the layer norm behind attention, not with mab=code [width]");
    add("norm_bias", "of the layer norm behind attention, not with mab=code [width]");
    add("ff_norm_weight", "of the last layer norm, not with mab=code [width]");
    add("ff_norm_bias", "of the last layer norm, not with mab=code [width]");
  };
  add_stage("gather", "of the inducing points over the sequence");
  add_stage("spread", "of the sequence over what was gathered");
  block.depth_warning = [](const Json& options, int64_t layers) -> std::string {
    if (block_schema().read(options).mab != "code" || layers <= kDeepest) return "";
    return fmt::format(
        "set-isab with attention.mab=code hands nothing but projected queries from layer to layer, without a norm, "
        "which wants {} layers at most, got {}; attention.mab=code-norm or paper takes more",
        kDeepest, layers);
  };
  block.build_core = nullptr;
  block.build_block = [](const Json& options, const BuildContext& context) {
    return std::make_shared<InducedBlock>(block_schema().read(options), context);
  };
  return {induced, block};
}

}  // namespace xformer::attention::variants::set_transformer
