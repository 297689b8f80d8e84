// Adaptive attention span: Sukhbaatar, Grave, Bojanowski, Joulin, "Adaptive Attention Span in Transformers", ACL 2019,
// section 2.2, equations 3 to 5. Each head learns how far it looks, z in [0, 1] of the longest span S:
//   m(x) = min(max((R + S z - x) / R, 0), 1),   x the steps from the row's nearest key
//   w_j = m(x_j) exp(s_j) / sum of m(x) exp(s),   s_j = q (k_j + e_x) / sqrt(d)
// with a learned vector e of each distance, shared by all heads and layers. The loss gets lambda S mean(z) of every
// layer, and z is brought back into [0, 1] after a step. As in the authors' code m multiplies a softmax over all S
// keys, and weights are divided by their sum + 1e-8. Both ways (attention-more 7): x = |i - j|, one z for both sides,
// distances ahead have vectors of their own. The authors' model leaves the token itself out (include_self=false).
#include <algorithm>
#include <cmath>

#include "attention/descriptor.h"
#include "attention/shared/windows.h"
#include "kernels/batched_product/batched_product.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::adaptive_span {

constexpr double kEpsilon = 1e-8;   // of a row's sum
constexpr int64_t kTrimmedTo = 64;  // keys; trimmed spans are multiples of it

struct Options {
  int64_t span = 0;
  int64_t ramp = 32;
  double span_penalty = 5e-7;
  bool include_self = true;
  bool trim = false;
};

class AdaptiveSpanCore : public AttentionCore {
 public:
  AdaptiveSpanCore(const Options& options, const BuildContext& context)
      : options_(options),
        span_(options.span > 0 ? options.span : context.max_len),
        first_(options.include_self ? 0 : 1),
        causal_(context.causal),
        dropout_(context.make_dropout()) {
    XF_ASSERT(span_ > 0, "adaptive-span needs the longest length when it is built");
    z_ = register_parameter("span", at::zeros({context.heads, 1, 1}));
    const auto vectors = [&](const std::string& name, int64_t rows) {
      return context.shared_parameter("adaptive_span/" + name, [&] {
        return context.init.normal(name, {rows, context.head_dim}, 1);
      });
    };
    past_ = vectors("past", span_);
    if (const int64_t rows = reach(span_); !causal_ && rows > 0) ahead_ = vectors("ahead", rows);
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    XF_ASSERT(mask.causal == causal_, "adaptive-span was built with causal {}", causal_);
    const int64_t n = q.size(2), span = used_span();
    const Windows windows = windows_of(n, span);
    const at::Tensor scaled = windows.rows(q / std::sqrt(static_cast<double>(q.size(-1))));            // [b,h,1,t,c,d]
    const at::Tensor scores = kernels::batched_product(scaled, windows.columns(k).transpose(-1, -2));  // [b,h,1,t,c,w]

    // Of the key from the row [c,w].
    const auto numbers = q.options().dtype(at::kLong);
    const at::Tensor offset = at::arange(-windows.before, windows.block + windows.after, numbers) -
                              at::arange(windows.block, numbers).unsqueeze(1);
    const auto [past, ahead] = vectors_used(n, span);
    at::Tensor vectors = past_.narrow(0, 0, past), place = (-offset - first_).clamp(0, past - 1);
    if (ahead > 0) {
      vectors = at::cat({vectors, ahead_.narrow(0, 0, ahead)});
      place = at::where(offset.gt(0), (offset + (past - 1)).clamp_max(past + ahead - 1), place);
    }
    const at::Tensor by_distance = at::matmul(scaled, vectors.t()).gather(-1, place.expand(scores.sizes()));

    const at::Tensor steps = offset.abs() - first_;  // x
    at::Tensor allowed = options_.include_self ? at::Tensor() : offset.ne(0);
    if (const at::Tensor known = windows.allowed(mask.key_valid, q); known.defined())
      allowed = allowed.defined() ? allowed.logical_and(known) : known;
    const at::Tensor all = scores + by_distance;
    const at::Tensor whole = allowed.defined() ? partial_softmax(all, allowed).weights : at::softmax(all, -1);
    // At a kink these pass the mean of both slopes; clamp would pass the steeper one.
    const at::Tensor slope = (static_cast<double>(span_) * z_ + (static_cast<double>(options_.ramp) - steps)) /
                             static_cast<double>(options_.ramp);
    const at::Tensor soft =
        at::minimum(at::maximum(slope, at::zeros({}, slope.options())), at::ones({}, slope.options()));  // m [h,c,w]
    const at::Tensor masked = whole * soft.unsqueeze(1).unsqueeze(1);
    const at::Tensor weights = masked / (masked.sum(-1, /*keepdim=*/true) + kEpsilon);
    probe("weights", weights), probe("reach", static_cast<double>(span_) * z_ + static_cast<double>(options_.ramp));
    return windows.join(kernels::batched_product(dropout_(weights, is_training()), windows.columns(v)));
  }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const int64_t n = shape.query_len, span = used_span();
    const Windows windows = windows_of(n, span);
    const auto [past, ahead] = vectors_used(n, span);
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    const auto rows = static_cast<double>(windows.blocks * windows.block);
    const double executed = 4 * windows.explicit_pairs() + 2 * rows * static_cast<double>(past + ahead);
    const double pattern = 6 * (windows.pattern_pairs() - static_cast<double>(first_ * n));
    return {z * d * executed, z * d * pattern, 8 * z * windows.explicit_pairs()};
  }

  at::Tensor extra_loss() override {
    if (options_.span_penalty == 0) return {};
    return z_.mean() * (options_.span_penalty * static_cast<double>(span_));
  }

  void after_step(int64_t) override {
    const at::NoGradGuard no_grad;
    z_.clamp_(0, 1);
  }

 private:
  // Steps to the farthest token of a span.
  [[nodiscard]] int64_t reach(int64_t span) const { return span - 1 + first_; }
  [[nodiscard]] Windows windows_of(int64_t n, int64_t span) const {
    return Windows::sliding(n, reach(span), causal_ ? 0 : reach(span));
  }
  // Distances behind and ahead that n tokens have.
  [[nodiscard]] std::pair<int64_t, int64_t> vectors_used(int64_t n, int64_t span) const {
    return {std::max<int64_t>(1, std::min(span, n - first_)), causal_ ? 0 : std::min(reach(span), n - 1)};
  }
  // The span whose keys are multiplied: beyond it no head has a weight.
  [[nodiscard]] int64_t used_span() const {
    if (!options_.trim || is_training()) return span_;
    const double longest = z_.max().item<double>() * static_cast<double>(span_) + static_cast<double>(options_.ramp);
    return std::min(span_, static_cast<int64_t>(std::ceil(longest / kTrimmedTo)) * kTrimmedTo);
  }

  Options options_;
  int64_t span_;   // S
  int64_t first_;  // steps from a row to its nearest key
  bool causal_;
  kernels::Dropout dropout_;
  at::Tensor z_;             // [h, 1, 1]
  at::Tensor past_, ahead_;  // e of keys behind [S, d] and ahead [S - 1 or S, d]; undefined where there are none
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::span, "span", "longest span (S); 0: the longest length", at_least(0))
          .add(&Options::ramp, "ramp", "tokens over which a head's weights fade out behind its span (R)", at_least(1))
          .add(&Options::span_penalty, "span_penalty",
               "added to the loss for each token of the heads' mean span, in every layer (lambda)", at_least(0))
          .add(&Options::include_self, "include_self", "a token sees itself; in the authors' model it does not")
          .add(&Options::trim, "trim",
               "outside of training, multiply only keys within the longest learned span; reads the spans back");
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "adaptive-span";
  result.title = "Adaptive attention span";
  result.paper = "Sukhbaatar, Grave, Bojanowski, Joulin: Adaptive Attention Span in Transformers, 2019";
  result.method_class = "FP";
  result.summary = "Each head learns how far it looks, by a soft mask over distances and a penalty on its span.";
  result.complexity = Complexity::kQuadratic;
  result.traits = {.causal_ok = true, .fixed_length = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  result.tensors = {
      {"span", "z: how far each head looks, as a share of the longest span [h, 1, 1]",
       [](const at::Tensor& values) {
         return values.ge(0).logical_and(values.le(1)).all().item<bool>()
                    ? std::string()
                    : std::string("expected shares of the longest span, 0 to 1");
       }},
      {"adaptive_span_past", "e: added to a key, by the steps back to it; all heads and layers [S, d]"},
      {"adaptive_span_ahead", "e: added to a key, by the steps ahead to it; all heads and layers [S - 1, d]"}};
  result.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<AdaptiveSpanCore>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::adaptive_span
