// Adaptively sparse attention: rows of weights by alpha-entmax in place of softmax.
//   adaptively-sparse  Correia, Niculae, Martins, "Adaptively Sparse Transformers", EMNLP 2019, section 3: an alpha for
//                      each head, alpha_h = clamp(1 + sigmoid(a_h), 1.01, 2), learned with the rest
//   entmax15, sparsemax  alpha = 3/2 and 2: Peters, Niculae, Martins, "Sparse Sequence-to-Sequence Models", ACL 2019,
//                      equations 9 to 11, and Martins and Astudillo, "From Softmax to Sparsemax", ICML 2016
// over the keys that a row may read; the equations are those of kernels/entmax/entmax.h, the operator is
// kernels/entmax_attention.
#include <cmath>

#include "attention/decoding.h"
#include "kernels/entmax_attention/entmax_attention.h"
#include "tensor/closed_keys.h"

namespace xformer::attention::variants::entmax {

struct Options {
  double alpha = 1.5;
  bool learn_alpha = true;
};

constexpr double kLeastAlpha = 1.01, kMostAlpha = 2;

class EntmaxCore : public AttentionCore, public RowCore {
 public:
  EntmaxCore(const Options& options, const BuildContext& context)
      : alpha_(options.alpha), causal_(context.causal), dropout_(context.make_dropout()) {
    if (!options.learn_alpha) return;
    const double start = std::log((alpha_ - 1) / (2 - alpha_));
    logit_ = register_parameter("alpha_logit", context.init.normal("alpha_logit", {context.heads}, 1) + start);
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    kernels::EntmaxAttentionOptions options;
    options.rows = {1 / std::sqrt(static_cast<double>(q.size(-1))), mask, mask.query_valid(q.size(2)),
                    dropout_.place(is_training())};
    at::Tensor alpha;
    if (logit_.defined()) alpha = (1 + at::sigmoid(logit_)).clamp(kLeastAlpha, kMostAlpha);
    else options.alpha = alpha_;
    return kernels::entmax_attention(q, k, v, alpha, options);
  }

  // Keeps queries, keys, values, output and one threshold a row. What runs when causal is the CPU's count of blocks.
  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    const double n = static_cast<double>(shape.query_len), keys = static_cast<double>(shape.key_len);
    const auto pairs = static_cast<double>(kernels::entmax_attention_pairs(shape.query_len, shape.key_len, causal_));
    return {4 * z * d * pairs, 4 * z * d * read_pairs(shape.query_len, shape.key_len, causal_),
            z * (2 * d * (n + keys) + n)};
  }

  [[nodiscard]] bool zeroes_padding() const override { return true; }
  [[nodiscard]] bool takes_bf16() const override { return true; }

 private:
  double alpha_;
  bool causal_;
  kernels::Dropout dropout_;
  at::Tensor logit_;  // a [h]
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::alpha, "alpha",
               "exponent of entmax: 1 is softmax, 2 sparsemax; where it is learned, its start", between(1, 2))
          .add(&Options::learn_alpha, "learn_alpha", "learn alpha, one for each head");
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor adaptive;
  adaptive.name = "adaptively-sparse";
  adaptive.aliases = {"alpha-entmax"};
  adaptive.title = "Adaptively Sparse Transformer";
  adaptive.paper = "Correia, Niculae, Martins: Adaptively Sparse Transformers, 2019";
  adaptive.method_class = "LP";
  adaptive.summary = "Weights by alpha-entmax, which gives weak keys none at all; each head learns how sparse it is.";
  adaptive.complexity = Complexity::kQuadratic;
  adaptive.traits = {.causal_ok = true, .cross_ok = true};
  adaptive.appended_padding = always_exact();
  adaptive.options = schema().options();
  adaptive.tensors = {{"alpha_logit", "a: alpha = 1 + sigmoid(a) of each head, kept within 1.01 and 2 [h]"}};
  adaptive.dense_limit = Json{{"alpha", 1.0}, {"learn_alpha", false}};
  adaptive.check = [](const Json& options, int64_t) {
    const Options own = schema().read(options);
    XF_CHECK(!own.learn_alpha || (own.alpha > 1 && own.alpha < 2), UserError,
             "attention.alpha: expected a number between 1 and 2 to start to learn from, got {}; "
             "attention.learn_alpha=false takes it as it is",
             own.alpha);
  };
  adaptive.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<EntmaxCore>(schema().read(options), context);
  };

  const auto fixed = [&](const char* name, const char* title, const char* paper, const char* summary, double alpha) {
    Descriptor one = adaptive;
    one.name = name, one.title = title, one.paper = paper, one.summary = summary;
    one.aliases.clear();
    one.options.clear();
    one.tensors.clear();
    one.dense_limit.reset();
    one.check = [](const Json&, int64_t) {};
    one.build_core = [alpha](const Json&, const BuildContext& context) {
      return std::make_shared<EntmaxCore>(Options{alpha, false}, context);
    };
    return one;
  };
  return {
      adaptive,
      fixed("entmax15", "1.5-entmax attention", "Peters, Niculae, Martins: Sparse Sequence-to-Sequence Models, 2019",
            "Weights by 1.5-entmax, between softmax and sparsemax: weak keys get none at all.", 1.5),
      fixed("sparsemax", "Sparsemax attention",
            "Martins, Astudillo: From Softmax to Sparsemax: A Sparse Model of Attention and Multi-Label "
            "Classification, 2016",
            "Weights are the scores' nearest distribution, in which weak keys get none at all.", 2)};
}

}  // namespace xformer::attention::variants::entmax
