// Additive attention: Bahdanau, Cho, Bengio, "Neural Machine Translation by Jointly Learning to Align and Translate",
// ICLR 2015, appendix A.1.2: a network with one hidden layer in place of the dot product,
//   e_ij = w tanh(q_i + k_j),   o_i = softmax over j of e_ij times v_j
// over valid keys (causal: j <= i), with one w for each head. The maps of queries and keys are the paper's W_a and U_a,
// their biases its hidden bias; a bias behind w would cancel. There is no 1 / sqrt(d), which answers the growth of dot
// products: |e_ij| is at most the sum of |w|. Not Fastformer (Wu et al. 2021), which calls its two global vectors
// additive attention too.
#include <cmath>

#include "attention/decoding.h"
#include "kernels/additive_attention/additive_attention.h"
#include "tensor/closed_keys.h"

namespace xformer::attention::variants::additive {

class AdditiveCore : public AttentionCore, public RowCore {
 public:
  explicit AdditiveCore(const BuildContext& context) : causal_(context.causal), dropout_(context.make_dropout()) {
    const double bound = 1 / std::sqrt(static_cast<double>(context.head_dim));
    weight_ = register_parameter(
        "score_weight", context.init.uniform("score_weight", {context.heads, context.head_dim}, -bound, bound));
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    return kernels::additive_attention(q, k, v, weight_,
                                       {mask, mask.query_valid(q.size(2)), dropout_.place(is_training())});
  }

  // Keeps queries, keys, values, output and one log-sum per row. What runs when causal is the CPU's count of tiles. A
  // tanh for each pair and channel is no product, and takes most of the time.
  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    const double n = static_cast<double>(shape.query_len), keys = static_cast<double>(shape.key_len);
    const auto pairs = static_cast<double>(kernels::additive_attention_pairs(shape.query_len, shape.key_len, causal_));
    return {4 * z * d * pairs, 4 * z * d * read_pairs(shape.query_len, shape.key_len, causal_),
            z * (2 * d * (n + keys) + n)};
  }

  [[nodiscard]] bool zeroes_padding() const override { return true; }
  [[nodiscard]] bool takes_bf16() const override { return true; }

 private:
  bool causal_;
  kernels::Dropout dropout_;
  at::Tensor weight_;  // w [h,d]
};

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "additive";
  result.aliases = {"bahdanau"};
  result.title = "Additive attention";
  result.paper = "Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate, 2015";
  result.method_class = "full";
  result.summary =
      "Scores by a network with one hidden layer, not by dot products: a tanh for every pair and channel, which rules "
      "its time.";
  result.complexity = Complexity::kQuadratic;
  result.traits = {.causal_ok = true, .cross_ok = true};
  result.appended_padding = always_exact();
  result.tensors = {{"score_weight", "w: of the hidden layer's channels, a row for each head [h, d]"}};
  result.build_core = [](const Json&, const BuildContext& context) { return std::make_shared<AdditiveCore>(context); };
  return {result};
}

}  // namespace xformer::attention::variants::additive
