// Adaptively sparse attention: rows of weights by alpha-entmax in place of softmax.
//   adaptively-sparse  Correia, Niculae, Martins, "Adaptively Sparse Transformers", EMNLP 2019, section 3: an alpha for
//                      each head, alpha_h = clamp(1 + sigmoid(a_h), 1.01, 2), learned with the rest
//   entmax15, sparsemax  alpha = 3/2 and 2: Peters, Niculae, Martins, "Sparse Sequence-to-Sequence Models", ACL 2019,
//                      equations 9 to 11, and Martins and Astudillo, "From Softmax to Sparsemax", ICML 2016
// With b = alpha - 1, p = entmax(s) is argmax over distributions of p s + sum (p - p^alpha) / (alpha b), that is
//   p_j = [1 + b (s_j - max s - t)]_+^(1 / b)   with the t for which they sum to 1
// over the keys that a row may read. The sum falls in t and is convex, so that Newton's steps from t = 0, where it is
// at least 1, rise to the root. Gradients are closed forms of p alone (attention-third 9): with u = p^(2 - alpha) on
// the support and u' = u / sum u, dL/ds = u (g - sum u' g), and
//   dp / dalpha = (p - u') / b^2 + (h - u' sum h) / b,   h = -p log p
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "attention/decoding.h"
#include "attention/shared/closed_keys.h"
#include "kernels/batched_product/batched_product.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::entmax {

struct Options {
  double alpha = 1.5;
  bool learn_alpha = true;
};

constexpr double kLeastAlpha = 1.01, kMostAlpha = 2;
constexpr int kNewtonSteps = 16;                     // 12 reach 1e-14 in double for up to 4096 keys
constexpr int64_t kTileElements = int64_t{1} << 18;  // of rows that go through all steps in the cache

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Powers of what lies above the threshold. `fixed` is alpha where that is a number, else 0 and b [r,1] says it.
struct Power {
  double fixed;
  at::Tensor b;

  // x = b (d - t) -> p, and p / (1 + x), the slope of p.
  struct Point {
    at::Tensor p, slope;
  };
  [[nodiscard]] Point at(const at::Tensor& x) const {
    if (fixed == 2) {
      const at::Tensor p = (x + 1).clamp_min(0);
      return {p, p.gt(0).to(p.scalar_type())};
    }
    if (fixed == 1.5) {
      const at::Tensor root = (x + 1).clamp_min(0);
      return {root.square(), root};
    }
    const at::Tensor above = x.clamp_min(-1), p = at::exp(at::log1p(above) / b);
    return {p, p / (above + 1).clamp_min(1e-30)};
  }
};

// Rows [r,n] of scores -> p; rows without a key have the lowest score everywhere, and p = 0.
at::Tensor entmax_rows(const at::Tensor& scores, const Power& power) {
  const at::Tensor top = scores.amax(-1, /*keepdim=*/true), d = (scores - top) * power.b;
  at::Tensor shift = at::zeros_like(top);  // b t
  for (int step = 0; step < kNewtonSteps; ++step) {
    const auto [p, slope] = power.at(d - shift);
    shift = shift + power.b * (p.sum(-1, /*keepdim=*/true) - 1) / slope.sum(-1, /*keepdim=*/true);
  }
  const at::Tensor p = power.at(d - shift).p;
  const at::Tensor any = top.gt(lowest_score(scores.scalar_type()) / 2);
  return p * (any.to(p.scalar_type()) / p.sum(-1, /*keepdim=*/true));
}

struct RowGradients {
  at::Tensor scores;  // [r,n]
  at::Tensor alpha;   // [r,1]
};

RowGradients entmax_gradients(const at::Tensor& p, const at::Tensor& g, const Power& power) {
  if (power.fixed != 0) {
    const at::Tensor u = power.fixed == 2 ? p.gt(0).to(p.scalar_type()) : p.sqrt();
    const at::Tensor mean = (u * g).sum(-1, /*keepdim=*/true) / u.sum(-1, /*keepdim=*/true).clamp_min(0.5);
    return {u * (g - mean), {}};
  }
  const auto sum = [](const at::Tensor& x) { return x.sum(-1, /*keepdim=*/true); };
  // u = p + e; with e the differences near alpha = 1 keep their digits.
  const at::Tensor log_p = at::where(p.gt(0), p, 1).log(), e = p * at::expm1(-power.b * log_p), h = -p * log_p;
  const at::Tensor total = sum(p) + sum(e);  // at least 1, but for rows without a key
  const at::Tensor inverse = 1 / total.clamp_min(0.5), share = (p + e) * inverse;
  const at::Tensor by_alpha = (p * sum(e) - e) * inverse / power.b.square() + (h - share * sum(h)) / power.b;
  return {(p + e) * (g - sum(share * g)), sum(g * by_alpha)};
}

// entmax over the last dimension of scores [b,h,q,k], with alpha [h or 1].
struct EntmaxFunction : torch::autograd::Function<EntmaxFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& scores, const at::Tensor& alpha, double fixed) {
    const at::Tensor result = at::empty_like(scores, at::MemoryFormat::Contiguous);
    for_tiles(scores, alpha, fixed, [&](const Power& power, int64_t first, int64_t rows) {
      const at::Tensor tile = scores.flatten(0, 2).narrow(0, first, rows);
      result.view({-1, scores.size(3)}).narrow(0, first, rows).copy_(entmax_rows(tile, power));
    });
    context->save_for_backward({result, alpha});
    context->saved_data["fixed"] = fixed;
    return result;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &p = saved[0], &alpha = saved[1];
    const double fixed = context->saved_data["fixed"].toDouble();
    const at::Tensor g = gradients[0].contiguous(), result = at::empty_like(p);
    std::vector<at::Tensor> of_alpha;
    for_tiles(p, alpha, fixed, [&](const Power& power, int64_t first, int64_t rows) {
      const auto tile = [&](const at::Tensor& x) { return x.view({-1, p.size(3)}).narrow(0, first, rows); };
      const RowGradients found = entmax_gradients(tile(p), tile(g), power);
      tile(result).copy_(found.scores);
      if (found.alpha.defined()) of_alpha.push_back(found.alpha);
    });
    if (of_alpha.empty()) return {result, {}, {}};
    const at::Tensor rows = at::cat(of_alpha, 0).view({p.size(0), p.size(1), p.size(2)});
    return {result, rows.sum(at::IntArrayRef({0, 2})), {}};
  }

 private:
  // work(power, first row, rows) over the b h q rows of x.
  template <class Work>
  static void for_tiles(const at::Tensor& x, const at::Tensor& alpha, double fixed, const Work& work) {
    const int64_t rows = x.size(0) * x.size(1) * x.size(2);
    const int64_t height = std::max<int64_t>(1, kTileElements / std::max<int64_t>(1, x.size(3)));
    const at::Tensor b = (alpha - 1).view({1, -1, 1}).expand({x.size(0), x.size(1), x.size(2)}).reshape({rows, 1});
    for (int64_t first = 0; first < rows; first += height) {
      const int64_t count = std::min(height, rows - first);
      work(Power{fixed, b.narrow(0, first, count)}, first, count);
    }
  }
};

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
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    const at::Tensor scores = kernels::batched_product(q * scale, k.transpose(-1, -2));  // [b,h,n,n]
    const at::Tensor weights = this->weights(scores, mask);
    probe("weights", weights);
    return kernels::batched_product(dropout_(weights, is_training()), v);
  }

  // Weights and the dropout's output are kept for the backward pass.
  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    const double pairs = static_cast<double>(shape.query_len * shape.key_len);
    return {4 * z * d * pairs, 4 * z * d * read_pairs(shape.query_len, shape.key_len, causal_), 2 * z * pairs};
  }

 private:
  [[nodiscard]] at::Tensor weights(const at::Tensor& scores, const SequenceMask& mask) const {
    if (!logit_.defined() && alpha_ == 1) return masked_softmax(scores, mask);
    const at::Tensor closed = closed_keys(mask, scores.size(2), scores.size(3), scores);
    {
      // A weight of zero passes no gradient to its score.
      const at::NoGradGuard no_grad;
      if (closed.defined()) scores.masked_fill_(closed, lowest_score(scores.scalar_type()));
    }
    const bool closed_form = !logit_.defined() && (alpha_ == 1.5 || alpha_ == 2);
    const at::Tensor alpha = logit_.defined()
                                 ? (1 + at::sigmoid(logit_)).clamp(kLeastAlpha, kMostAlpha).to(scores.scalar_type())
                                 : at::full({1}, alpha_, scores.options());
    const at::Tensor result = EntmaxFunction::apply(scores, alpha, closed_form ? alpha_ : 0.0);
    probe("alpha", alpha);
    probe("support", result.gt(0).sum(-1));
    return result;
  }

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
