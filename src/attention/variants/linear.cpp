// Linear attention: Katharopoulos, Vyas, Pappas, Fleuret, "Transformers are RNNs: Fast Autoregressive Transformers
// with Linear Attention", ICML 2020, equations 4 to 7 (bidirectional) and 8 to 12 (causal), phi = elu + 1:
//   o_i = phi(q_i)^T S / (phi(q_i)^T z + eps),   S = sum_j phi(k_j) v_j^T,   z = sum_j phi(k_j)
// over valid keys j (causal: j <= i). There is no 1/sqrt(d).
#include <cmath>

#include "attention/descriptor.h"
#include "attention/shared/kernel_sums.h"

namespace xformer::attention::variants::linear {

constexpr double kEpsilon = 1e-6;  // of the denominator

struct Options {
  std::string norm = "sum";
};

class LinearCore : public AttentionCore, public DecodingCore {
 public:
  LinearCore(const Options& options, const BuildContext& context)
      : by_sum_(options.norm == "sum"), causal_(context.causal) {}

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    return feature_attention(q, k, v, mask, features(k.size(2)));
  }

  at::Tensor decode(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const DecodingStep& step,
                    State& kept) override {
    return decode_features(q, k, v, features(step.length), step, kept);
  }

  [[nodiscard]] bool zeroes_padding() const override { return true; }
  [[nodiscard]] bool takes_bf16() const override { return true; }
  [[nodiscard]] bool takes_half_on_devices(const at::Tensor& /*q*/) const override { return true; }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const int64_t d = shape.head_dim, columns = by_sum_ ? d + 1 : d;
    return feature_attention_cost(shape, d, columns, causal_);
  }

 private:
  [[nodiscard]] kernels::FeatureAttentionOptions features(int64_t keys) const {
    kernels::FeatureAttentionOptions options;
    options.map = kernels::FeatureMap::kElu;
    if (by_sum_) options.epsilon = kEpsilon;
    else options.divisor = std::sqrt(static_cast<double>(keys));
    return options;
  }

  bool by_sum_, causal_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema = Schema<Options>().add(
      &Options::norm, "norm",
      "what kernel attention is divided by: sum (of a row's weights), sqrt-n (root of the padded length, no sum)",
      one_of({"sum", "sqrt-n"}));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "linear";
  result.title = "Linear Transformer";
  result.paper =
      "Katharopoulos, Vyas, Pappas, Fleuret: Transformers are RNNs: Fast Autoregressive Transformers with "
      "Linear Attention, 2020";
  result.method_class = "KR";
  result.summary = "Replaces exp(q k) by a product of features elu + 1, so that keys and values are summed once.";
  result.complexity = Complexity::kLinear;
  result.traits = {.causal_ok = true, .cross_ok = true};
  result.appended_padding = {"with norm=sum", [](const Json& options) { return options["norm"] == "sum"; }};
  result.options = schema().options();
  result.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<LinearCore>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::linear
