// Adaptive attention span: Sukhbaatar, Grave, Bojanowski, Joulin, "Adaptive Attention Span in Transformers", ACL 2019,
// section 2.2, equations 3 to 5. Each head learns how far it looks, z in [0, 1] of the longest span S:
//   m(x) = min(max((R + S z - x) / R, 0), 1),   x the steps from the row's nearest key
//   w_j = m(x_j) exp(s_j) / sum of m(x) exp(s),   s_j = q (k_j + e_x) / sqrt(d)
// with a learned vector e of each distance, shared by all heads and layers. The loss gets lambda S mean(z) of every
// layer, and z is brought back into [0, 1] after a step. m stands in the sum too, so that what it forbids need not be
// looked at: log m joins the scores, and the operator for windows goes as far as a head sees. (The authors' code
// multiplies a softmax over all S keys by m and divides by what is left + 1e-8.) Both ways (attention-more 7): x = |i -
// j|, one z for both sides, distances ahead have vectors of their own. The authors' model leaves the token itself out
// (include_self=false).
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/decoding.h"
#include "attention/descriptor.h"
#include "attention/shared/index_tables.h"
#include "attention/shared/windows.h"
#include "kernels/batched_product/batched_product.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::adaptive_span {

// Of a key at the kink where m becomes zero, instead of none: by it z has the mean of both slopes there.
constexpr double kVanishing = 1e-30;

struct Options {
  int64_t span = 0;
  int64_t ramp = 32;
  double span_penalty = 5e-7;
  bool include_self = true;
};

class AdaptiveSpanCore : public AttentionCore, public DecodingCore {
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
    if (!causal_ && farthest() > 0) ahead_ = vectors("ahead", farthest());
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    XF_ASSERT(mask.causal == causal_, "adaptive-span was built with causal {}", causal_);
    const Windows windows = windows_of(q.size(2));
    probe("reach", static_cast<double>(span_) * z_ + static_cast<double>(options_.ramp));
    return kernels::window_attention(q, k, v, {}, {windows, mask.key_valid, dropout_.place(is_training())}, nullptr,
                                     by_offset(windows.back, windows.ahead));
  }

  // The new row reads as many keys as its heads see.
  at::Tensor decode(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const DecodingStep& step,
                    State& kept) override {
    const at::Tensor keys = keep(kept, "keys", k, step), values = keep(kept, "values", v, step);
    Carry none;
    if (q.size(2) > 1) return forward(q, k, v, SequenceMask{{}, /*causal=*/true}, none);
    const int64_t back = std::min(reaches(farthest()).max().item<int64_t>(), step.first);
    const auto [vectors, bias] = by_offset(back, 0);
    const auto seen = [&](const at::Tensor& rows) { return rows.narrow(2, step.first - back, back + 1); };
    const at::Tensor scaled = q / std::sqrt(static_cast<double>(q.size(-1)));
    const at::Tensor scores = kernels::batched_product(scaled, (seen(keys) + vectors).transpose(-1, -2));  // [b,h,1,w]
    const at::Tensor all = scores + bias.unsqueeze(1);
    return kernels::batched_product(partial_softmax(all, all.isneginf().logical_not()).weights, seen(values));
  }

  [[nodiscard]] bool zeroes_padding() const override { return true; }
  [[nodiscard]] bool takes_bf16() const override { return true; }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const int64_t n = shape.query_len;
    const Windows windows = windows_of(n);
    const auto b = static_cast<double>(shape.batch), d = static_cast<double>(shape.head_dim);
    double products = 0, pairs = 0;
    const at::Tensor reach = reaches(windows.back).to(at::kCPU);
    for (int64_t head = 0; head < shape.heads; ++head) {
      const int64_t back = reach[head].item<int64_t>(), ahead = std::min(back, windows.ahead);
      products += kernels::relative_products(windows, back, ahead);
      pairs += Windows::sliding(n, back, ahead).pattern_pairs() - static_cast<double>(first_ * n);
    }
    const double distances = static_cast<double>(windows.back + 1 + windows.ahead) * d;
    return {2 * b * d * products, 6 * b * d * pairs,
            kept_of_windows(b * static_cast<double>(shape.heads), static_cast<double>(n), d) + distances};
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
  // Offset of the farthest token of the longest span.
  [[nodiscard]] int64_t farthest() const { return span_ - 1 + first_; }
  [[nodiscard]] Windows windows_of(int64_t n) const {
    return Windows::sliding(n, farthest(), causal_ ? 0 : farthest());
  }

  // log m of the offsets -back to ahead [h,r].
  [[nodiscard]] at::Tensor log_mask(int64_t back, int64_t ahead) const {
    const at::Tensor offset = tables_.get("offsets", {back, ahead, static_cast<int64_t>(z_.scalar_type())}, z_.device(),
                                          [&](const at::TensorOptions& numbers) {
                                            return at::arange(-back, ahead + 1, numbers.dtype(z_.scalar_type()));
                                          });
    const at::Tensor left =
        (static_cast<double>(span_) * z_.squeeze(-1) + (static_cast<double>(options_.ramp + first_) - offset.abs())) /
        static_cast<double>(options_.ramp);
    // At a kink these pass the mean of both slopes; clamp would pass the steeper one.
    const at::Tensor soft = at::minimum(at::maximum(left, at::zeros({}, left.options())), at::ones({}, left.options()));
    at::Tensor far = left.lt(0);
    if (first_ == 1) far = far.logical_or(offset.eq(0));
    const at::Tensor weight = (soft + left.eq(0) * kVanishing).masked_fill(far, 1);
    return weight.log().masked_fill(far, -std::numeric_limits<double>::infinity());
  }
  // Offset of the farthest token that each head sees, of `longest` [h].
  [[nodiscard]] at::Tensor reaches(int64_t longest) const {
    const at::NoGradGuard no_grad;
    return log_mask(longest, 0).isneginf().logical_not().sum(-1) - (1 - first_);
  }
  [[nodiscard]] kernels::RelativeKeys by_offset(int64_t back, int64_t ahead) const {
    // The token itself has the vector of distance 0, or any if it is left out.
    std::vector<at::Tensor> vectors = {past_.narrow(0, 0, back + 1 - first_).flip(0)};
    if (first_ == 1) vectors.push_back(past_.narrow(0, 0, 1));
    if (ahead > 0) vectors.push_back(ahead_.narrow(0, 0, ahead));
    return {at::cat(vectors), log_mask(back, ahead)};
  }

  Options options_;
  int64_t span_;   // S
  int64_t first_;  // steps from a row to its nearest key
  bool causal_;
  IndexTables tables_;
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
          .add(&Options::include_self, "include_self", "a token sees itself; in the authors' model it does not");
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
