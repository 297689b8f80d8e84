// Synthesizer: Tay, Bahri, Metzler, Juan, Zhao, Zheng, "Synthesizer: Rethinking Self-Attention in Transformer Models",
// ICML 2021, section 3: O = softmax(S) V over valid keys (and, if causal, not later ones), where, per head,
//   dense         S_i = W2 relu(W1 x_i + b1) + b2
//   random        S = R                                 trained
//   fact-random   S = R1 R2                             of rank k
//   fact-dense    S_i = a_i (x) b_i (entry j is a_i[j / B] b_i[j mod B]), each a map of relu(W1 x_i + b1); A B = N_max
// `dot` adds q k / sqrt(d) to S. For n < N_max the first n rows and columns are used. The Long Range Arena setting is
// random with q k (there by default; its code masks no padding without q k and mixes heads with positions in dense,
// which is not copied).
#include <algorithm>
#include <cmath>

#include "attention/descriptor.h"
#include "attention/multi_head.h"
#include "attention/shared/full_precision.h"
#include "kernels/batched_product/batched_product.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::synthesizer {

enum class Kind { kDense, kRandom, kFactRandom, kFactDense };

struct Options {
  bool dot = false;
  int64_t rank = 32;
};

// The largest divisor of n up to its root: A of A B = n.
int64_t near_root_divisor(int64_t n) {
  auto result = static_cast<int64_t>(std::sqrt(static_cast<double>(n)));
  while (n % result != 0) --result;
  return result;
}

class SynthesizerMixer : public SequenceMixer {
 public:
  SynthesizerMixer(Kind kind, const Options& options, const BuildContext& context)
      : kind_(kind),
        dot_(options.dot),
        causal_(context.causal),
        model_dim_(context.model_dim),
        heads_(context.heads),
        head_dim_(context.head_dim),
        max_len_(context.max_len),
        dropout_(context.make_dropout()) {
    XF_ASSERT(max_len_ > 0, "synthesizer needs the longest length when it is built");
    const int64_t inner = heads_ * head_dim_;
    const auto linear = [&](const char* name, int64_t in, int64_t out, const std::string& scheme) {
      return register_module(name, std::make_shared<Linear>(in, out, context.bias, scheme, context.init.child(name)));
    };
    if (dot_) {
      query_ = linear("query", model_dim_, inner, context.init_scheme);
      key_ = linear("key", model_dim_, inner, context.init_scheme);
    }
    value_ = linear("value", model_dim_, inner, context.init_scheme);
    out_ = linear("out", inner, model_dim_, context.init_scheme);

    // What makes S begins as Xavier uniform in either scheme, biases at zero.
    const auto table = [&](const std::string& name, int64_t rows, int64_t columns) {
      const double bound = std::sqrt(6.0 / static_cast<double>(rows + columns));
      return register_parameter(name, context.init.uniform(name, {heads_, rows, columns}, -bound, bound));
    };
    const auto map = [&](const std::string& name, int64_t rows) {
      Map result{table(name + "_weight", rows, head_dim_), {}};
      if (context.bias) result.bias = register_parameter(name + "_bias", at::zeros({heads_, 1, rows}));
      return result;
    };
    switch (kind_) {
      case Kind::kDense:
        hidden_ = linear("hidden", model_dim_, inner, "glra");
        first_ = map("score", max_len_);
        break;
      case Kind::kFactDense:
        hidden_ = linear("hidden", model_dim_, inner, "glra");
        first_ = map("coarse", near_root_divisor(max_len_));
        second_ = map("fine", max_len_ / near_root_divisor(max_len_));
        break;
      case Kind::kRandom:
        first_.weight = table("table", max_len_, max_len_);
        break;
      case Kind::kFactRandom:
        first_.weight = table("left", max_len_, options.rank);
        second_.weight = table("right", options.rank, max_len_);
        break;
    }
  }

  at::Tensor forward(const at::Tensor& x, const SequenceMask& mask, Carry&) override {
    const int64_t b = x.size(0), n = x.size(1);
    XF_CHECK(n <= max_len_, UserError, "synthesizer was built for at most {} tokens, got {}", max_len_, n);
    at::Tensor q, k, v = value_->forward(x), hidden;
    if (dot_) q = query_->forward(x), k = key_->forward(x);
    if (hidden_) hidden = hidden_->forward(x).relu();
    at::Tensor mixed;
    {
      const FullPrecision full(x.device().type());
      const auto split = [&](const at::Tensor& rows) {  // [b, n, h d] -> [b, h, n, d]
        return full(rows).view({b, n, heads_, head_dim_}).transpose(1, 2);
      };
      v = split(v);
      at::Tensor scores = synthesize(hidden_ ? split(hidden) : at::Tensor(), n);  // [b or 1,h,n,n]
      probe("scores", scores);
      if (dot_) {
        q = split(q), k = split(k);
        probe("q", q), probe("k", k);
        scores = scores + kernels::batched_product(q / std::sqrt(static_cast<double>(head_dim_)), k.transpose(-1, -2));
      }
      const at::Tensor weights = masked_softmax(scores, mask).expand({b, -1, -1, -1});
      probe("v", v), probe("weights", weights);
      mixed = kernels::batched_product(dropout_(weights, is_training()), v);
      mixed = mask.zero_padding(mixed);
    }
    probe("mixed", mixed);
    return out_->forward(mixed.transpose(1, 2).reshape({b, n, heads_ * head_dim_}));
  }

  // 2 Z d for each pair and each of values, q k and dense; 2 H k, once a batch, for fact-random; n (A + B) of n B rows
  // in place of pairs for fact-dense. The [n,n] are formed whole, also where a causal row needs a part.
  [[nodiscard]] Cost cost(int64_t batch, int64_t length) const override {
    const double z = static_cast<double>(batch * heads_), d = static_cast<double>(head_dim_);
    const double n = static_cast<double>(length), m = static_cast<double>(model_dim_);
    const double maps = 2 + (dot_ ? 2 : 0) + (hidden_ ? 1 : 0), projections = 2 * z * n * d * m * maps;
    double of_pair = 2 * z * d * (dot_ ? 2 : 1), of_rows = 0;
    if (kind_ == Kind::kDense) of_pair += 2 * z * d;
    if (kind_ == Kind::kFactRandom)
      of_pair += 2 * static_cast<double>(heads_) * static_cast<double>(first_.weight.size(2));
    if (kind_ == Kind::kFactDense) of_rows = 2 * z * n * d * static_cast<double>(coarse_of(length) + fine_of(length));
    const double pairs = causal_ ? n * (n + 1) / 2 : n * n;
    return {projections + of_rows + of_pair * n * n, projections + of_rows + of_pair * pairs, 2 * z * n * n};
  }

 private:
  // y = weight x + bias for each head: weight [h, rows, d], bias [h, 1, rows] or undefined.
  struct Map {
    at::Tensor weight, bias;

    // The first `rows` of y: x [b,h,n,d] -> [b,h,n,rows].
    [[nodiscard]] at::Tensor operator()(const at::Tensor& x, int64_t rows) const {
      const at::Tensor y = kernels::batched_product(x, weight.narrow(1, 0, rows).transpose(-1, -2).unsqueeze(0));
      return bias.defined() ? y + bias.narrow(2, 0, rows) : y;
    }
  };

  // The entries of a_i and b_i that n columns need.
  [[nodiscard]] int64_t fine_of(int64_t n) const { return std::min(n, second_.weight.size(1)); }
  [[nodiscard]] int64_t coarse_of(int64_t n) const { return (n + fine_of(n) - 1) / fine_of(n); }

  // S. hidden [b,h,n,d] or undefined -> [b or 1,h,n,n].
  [[nodiscard]] at::Tensor synthesize(const at::Tensor& hidden, int64_t n) const {
    switch (kind_) {
      case Kind::kDense:
        return first_(hidden, n);
      case Kind::kFactDense:
        return (first_(hidden, coarse_of(n)).unsqueeze(-1) * second_(hidden, fine_of(n)).unsqueeze(-2))
            .flatten(-2)
            .narrow(-1, 0, n);
      case Kind::kRandom:
        return first_.weight.narrow(1, 0, n).narrow(2, 0, n).unsqueeze(0);
      case Kind::kFactRandom:
        return at::matmul(first_.weight.narrow(1, 0, n), second_.weight.narrow(2, 0, n)).unsqueeze(0);
    }
    return {};
  }

  Kind kind_;
  bool dot_, causal_;
  int64_t model_dim_, heads_, head_dim_, max_len_;
  kernels::Dropout dropout_;
  std::shared_ptr<Linear> query_, key_, value_, out_, hidden_;  // query and key only with dot, hidden only where dense
  Map first_, second_;                                          // W2 and b2; R; R1 and R2; those of a and b
};

Schema<Options> schema(Kind kind) {
  Schema<Options> result;
  result.add(&Options::dot, "dot", "add q k / sqrt(d) to the synthesized scores");
  if (kind == Kind::kFactRandom)
    result.add(&Options::rank, "rank", "rank of a table that is a product of two (k)", at_least(1));
  return result;
}

std::vector<Descriptor> describe() {
  Descriptor common;
  common.paper =
      "Tay, Bahri, Metzler, Juan, Zhao, Zheng: Synthesizer: Rethinking Self-Attention in Transformer Models, 2021";
  common.method_class = "LR+LP";
  common.complexity = Complexity::kQuadratic;
  common.traits = {.causal_ok = true, .fixed_length = true};
  common.appended_padding = always_exact();
  const auto described = [&](Kind kind, const std::string& name, const std::string& title, const std::string& summary,
                             const std::vector<TensorMeaning>& tensors) {
    Descriptor result = common;
    result.name = name;
    result.title = title;
    result.summary = summary;
    result.options = schema(kind).options();
    result.tensors = projection_meanings();
    result.tensors.insert(result.tensors.end(), tensors.begin(), tensors.end());
    result.build_mixer = [kind](const Json& options, const BuildContext& context) {
      return std::make_shared<SynthesizerMixer>(kind, schema(kind).read(options), context);
    };
    return result;
  };
  const TensorMeaning weight{"hidden.weight",
                             "W1 of hidden = relu(x W1^T + b1) [h d, m]; head i has rows i d to (i+1) d"},
      bias{"hidden.bias", "b1 of hidden [h d]"}, table{"table", "R: the scores themselves [h, N_max, N_max]"};

  Descriptor random_dot = described(Kind::kRandom, "synth-random-dot", "Synthesizer (random + dot product)",
                                    "Adds a trained table of scores to those of queries and keys, as the Long Range "
                                    "Arena ran it.",
                                    {table});
  random_dot.aliases = {"synthesizer"};
  random_dot.options = {};
  random_dot.build_mixer = [](const Json&, const BuildContext& context) {
    return std::make_shared<SynthesizerMixer>(Kind::kRandom, Options{.dot = true}, context);
  };
  return {described(Kind::kDense, "synth-dense", "Synthesizer (dense)",
                    "Each token computes its own scores over all positions, without looking at them.",
                    {weight,
                     bias,
                     {"score_weight", "W2 of S_i = W2 hidden_i + b2 [h, N_max, d]"},
                     {"score_bias", "b2 [h, 1, N_max]"}}),
          described(Kind::kRandom, "synth-random", "Synthesizer (random)",
                    "One trained table of scores for all inputs takes the place of queries and keys.", {table}),
          described(Kind::kFactRandom, "synth-fact-random", "Synthesizer (factorized random)",
                    "The trained table of scores is a product of two narrow ones.",
                    {{"left", "R1 of S = R1 R2 [h, N_max, k]"}, {"right", "R2 [h, k, N_max]"}}),
          described(Kind::kFactDense, "synth-fact-dense", "Synthesizer (factorized dense)",
                    "Each token computes two short vectors whose products are its scores over all positions.",
                    {weight,
                     bias,
                     {"coarse_weight", "of a_i = W hidden_i + bias, one entry for B positions [h, A, d]"},
                     {"coarse_bias", "of a_i [h, 1, A]"},
                     {"fine_weight", "of b_i = W hidden_i + bias, one entry for a position within B [h, B, d]"},
                     {"fine_bias", "of b_i [h, 1, B]"}}),
          random_dot};
}

}  // namespace xformer::attention::variants::synthesizer
