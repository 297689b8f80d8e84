// Explicit Sparse Transformer: Zhao, Lin, Zhang, Ren, Su, Sun, "Explicit Sparse Transformer: Concentrated Attention
// Through Explicit Selection", 2019, section 2.2:
//   s_ij = q_i k_j / sqrt(d),   A(i) = {j : s_ij >= the k-th largest s_ij of row i},   o_i = softmax over A(i) times v
// of the keys that row i may read (valid, and if causal not later), which come before the choice; a row with fewer than
// k keeps them all. Keys that tie with the k-th stay, so that the order of keys does not matter. `top_fraction` keeps
// more where a row may read much: k_i = max(k, ceil(fraction * keys of the row)) (attention-third 8).
#include <algorithm>
#include <cmath>

#include "attention/decoding.h"
#include "kernels/batched_product/batched_product.h"
#include "tensor/closed_keys.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::explicit_sparse {

struct Options {
  int64_t top_k = 8;
  double top_fraction = 0;
};

// Whole keys of a fraction, however it is rounded in binary.
int64_t fraction_of(double fraction, int64_t keys) {
  return static_cast<int64_t>(std::ceil(fraction * static_cast<double>(keys) - 1e-9));
}

class ExplicitSparseCore : public AttentionCore, public RowCore {
 public:
  ExplicitSparseCore(const Options& options, const BuildContext& context)
      : options_(options), causal_(context.causal), dropout_(context.make_dropout()) {}

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    const at::Tensor scores = kernels::batched_product(q * scale, k.transpose(-1, -2));  // [b,h,n,n]
    const at::Tensor closed = closed_keys(mask, q.size(2), k.size(2), q);
    {
      // Where a weight is zero, softmax passes no gradient: what is filled here needs none of its own.
      const at::NoGradGuard no_grad;
      const double lowest = lowest_score(scores.scalar_type());
      if (closed.defined()) scores.masked_fill_(closed, lowest);
      const at::Tensor threshold = this->threshold(scores, closed);
      probe("threshold", threshold);
      scores.masked_fill_(scores.lt(threshold), lowest);
    }
    at::Tensor weights = at::softmax(scores, -1);
    if (closed.defined()) weights = weights.masked_fill(closed, 0);  // rows without a key
    probe("weights", weights);
    return kernels::batched_product(dropout_(weights, is_training()), v);
  }

  // The products run over all pairs, the second with many zeros; weights and the dropout's output are kept.
  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    const double pairs = static_cast<double>(shape.query_len * shape.key_len);
    int64_t kept = 0;
    for (int64_t i = 0; i < shape.query_len; ++i) {
      const int64_t keys = causal_ ? i + 1 : shape.key_len;
      kept += std::min(keys, std::max(options_.top_k, fraction_of(options_.top_fraction, keys)));
    }
    return {4 * z * d * pairs,
            2 * z * d * (read_pairs(shape.query_len, shape.key_len, causal_) + static_cast<double>(kept)),
            2 * z * pairs};
  }

 private:
  // The k_i-th largest score of each row [b,h,n,1]; the lowest number where a row has fewer keys.
  [[nodiscard]] at::Tensor threshold(const at::Tensor& scores, const at::Tensor& closed) const {
    const int64_t keys = scores.size(-1), least = std::min(options_.top_k, keys);
    const int64_t most = std::min(keys, std::max(least, fraction_of(options_.top_fraction, keys)));
    const at::Tensor sorted = std::get<0>(at::topk(scores, most, -1));
    if (most == least || !closed.defined()) return sorted.narrow(-1, most - 1, 1);
    const at::Tensor open = closed.logical_not().sum(-1, /*keepdim=*/true).to(at::kDouble);
    const at::Tensor rank = at::ceil(open * options_.top_fraction - 1e-9).to(at::kLong).clamp(least, most) - 1;
    return sorted.gather(-1, rank.expand({scores.size(0), scores.size(1), scores.size(2), 1}));
  }

  Options options_;
  bool causal_;
  kernels::Dropout dropout_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::top_k, "top_k", "keys that a row or cluster keeps", at_least(1))
          .add(&Options::top_fraction, "top_fraction",
               "share of the keys it may read that a row keeps at least, beside top_k", between(0, 1));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "explicit-sparse";
  result.aliases = {"top-k", "exact-topk"};
  result.title = "Explicit Sparse Transformer";
  result.paper =
      "Zhao, Lin, Zhang, Ren, Su, Sun: Explicit Sparse Transformer: Concentrated Attention Through Explicit Selection, "
      "2019";
  result.method_class = "LP";
  result.summary = "Softmax over the k keys that match a row best; the others get no weight at all.";
  result.complexity = Complexity::kQuadratic;
  result.traits = {.causal_ok = true, .cross_ok = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  result.dense_limit = Json{{"top_k", 1 << 30}};
  result.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<ExplicitSparseCore>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::explicit_sparse
