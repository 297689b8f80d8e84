// Explicit Sparse Transformer: Zhao, Lin, Zhang, Ren, Su, Sun, "Explicit Sparse Transformer: Concentrated Attention
// Through Explicit Selection", 2019, section 2.2:
//   s_ij = q_i k_j / sqrt(d),   A(i) = {j : s_ij >= the k-th largest s_ij of row i},   o_i = softmax over A(i) times v
// of the keys that row i may read (valid, and if causal not later), which come before the choice; a row with fewer than
// k keeps them all. Keys that tie with the k-th stay, so that the order of keys does not matter. `top_fraction` keeps
// more where a row may read much: k_i = max(k, ceil(fraction * keys of the row)) (attention-third 8).
#include <cmath>

#include "attention/decoding.h"
#include "kernels/batched_product/batched_product.h"
#include "kernels/listed_attention/listed_attention.h"
#include "kernels/top_keys/top_keys.h"
#include "tensor/closed_keys.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::explicit_sparse {

struct Options {
  int64_t top_k = 8;
  double top_fraction = 0;
};

// Lists of so many keys take no more memory than the weights of all pairs would.
constexpr int64_t kFewerThanKeys = 2;

class ExplicitSparseCore : public AttentionCore, public RowCore {
 public:
  ExplicitSparseCore(const Options& options, const BuildContext& context)
      : options_(options), causal_(context.causal), dropout_(context.make_dropout()) {}

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    const kernels::TopKeysOptions options = choice(mask, mask.query_valid(q.size(2)));
    if (by_lists(k.size(2)) && probe_recorder == nullptr && kernels::top_keys_runs_fused(q, k)) {
      return kernels::listed_attention(q, k, v,
                                       {.places = kernels::top_keys(q, k, options),
                                        .lists = {},
                                        .key_valid = mask.key_valid,
                                        .row_valid = options.query_valid,
                                        .dropout = dropout_.place(is_training()),
                                        .drops_by_key = true});
    }
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    const at::Tensor scores = kernels::batched_product(q * scale, k.transpose(-1, -2));  // [b,h,n,n]
    const at::Tensor closed = closed_keys(mask, q.size(2), k.size(2), q);
    {
      // Where a weight is zero, softmax passes no gradient: what is filled here needs none of its own.
      const at::NoGradGuard no_grad;
      const double lowest = lowest_score(scores.scalar_type());
      if (closed.defined()) scores.masked_fill_(closed, lowest);
      const at::Tensor threshold = kernels::top_threshold(scores, closed, options);
      probe("threshold", threshold);
      scores.masked_fill_(scores.lt(threshold), lowest);
    }
    at::Tensor weights = at::softmax(scores, -1);
    if (closed.defined()) weights = weights.masked_fill(closed, 0);  // rows without a key
    probe("weights", weights);
    const at::Tensor out = kernels::batched_product(dropout_(weights, is_training()), v);
    const at::Tensor& valid = options.query_valid;
    return valid.defined() ? at::where(valid.unsqueeze(1).unsqueeze(-1), out, 0) : out;
  }

  // Where lists are read (on a CPU) all pairs are multiplied once, and those of kept keys twice; else all pairs twice,
  // and the weights and the dropout's output are kept.
  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    const double n = static_cast<double>(shape.query_len), keys = static_cast<double>(shape.key_len);
    double kept = 0;
    for (int64_t i = 0; i < shape.query_len; ++i) kept += static_cast<double>(most_of(causal_ ? i + 1 : shape.key_len));
    Cost cost;
    cost.flops_pattern = 2 * z * d * (read_pairs(shape.query_len, shape.key_len, causal_) + kept);
    if (by_lists(shape.key_len)) {
      const auto pairs = static_cast<double>(kernels::top_keys_pairs(shape.query_len, shape.key_len, causal_));
      cost.flops_executed = 2 * z * d * (pairs + 2 * kept);
      cost.peak_elements = z * (2 * d * (n + keys) + n * (1 + 2 * static_cast<double>(most_of(shape.key_len))));
    } else {
      cost.flops_executed = 4 * z * d * n * keys;
      cost.peak_elements = 2 * z * n * keys;
    }
    return cost;
  }

  [[nodiscard]] bool zeroes_padding() const override { return true; }

 private:
  [[nodiscard]] kernels::TopKeysOptions choice(const SequenceMask& mask = {},
                                               const at::Tensor& query_valid = {}) const {
    return {mask, query_valid, options_.top_k, options_.top_fraction};
  }
  // Keys that a row keeps, given how many it may read.
  [[nodiscard]] int64_t most_of(int64_t keys) const { return choice().kept(keys); }
  [[nodiscard]] bool by_lists(int64_t keys) const { return most_of(keys) * kFewerThanKeys <= keys; }

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
