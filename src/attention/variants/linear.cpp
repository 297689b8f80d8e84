// Linear attention: Katharopoulos, Vyas, Pappas, Fleuret, "Transformers are RNNs: Fast Autoregressive Transformers
// with Linear Attention", ICML 2020, equations 4 to 7 (bidirectional) and 8 to 12 (causal), phi = elu + 1:
//   o_i = phi(q_i)^T S / (phi(q_i)^T z + eps),   S = sum_j phi(k_j) v_j^T,   z = sum_j phi(k_j)
// over valid keys j (causal: j <= i). There is no 1/sqrt(d).
#include <cmath>

#include "attention/descriptor.h"
#include "attention/shared/kernel_sums.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::linear {

constexpr double kEpsilon = 1e-6;  // of the denominator

struct Options {
  std::string norm = "sum";
};

class LinearCore : public AttentionCore {
 public:
  LinearCore(const Options& options, const BuildContext& context)
      : by_sum_(options.norm == "sum"), causal_(context.causal) {}

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    const int64_t d = v.size(-1);
    at::Tensor values;  // padded rows are zero, so phi(k) needs no mask of its own
    if (by_sum_) values = values_and_count(v, mask);
    else values = mask.all_valid() ? v : v * mask.as_factor(v.scalar_type());
    const at::Tensor phi_q = at::elu(q) + 1, phi_k = at::elu(k) + 1;
    probe("phi_q", phi_q), probe("phi_k", phi_k);
    const at::Tensor sums = mask.causal ? causal_kernel_sums(phi_q, phi_k, values)
                                        : at::matmul(phi_q, at::matmul(phi_k.transpose(-1, -2), values));
    if (!by_sum_) return sums / std::sqrt(static_cast<double>(k.size(2)));
    const at::Tensor denominator = sums.narrow(-1, d, 1) + kEpsilon;  // [b,h,n,1]
    probe("denominator", denominator);
    return sums.narrow(-1, 0, d) / denominator;
  }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const int64_t d = shape.head_dim, columns = by_sum_ ? d + 1 : d;
    const double z = static_cast<double>(shape.batch * shape.heads);
    return {kernel_sums_flops(shape, d, columns, causal_), kernel_sums_flops(shape, d, columns, false),
            z * static_cast<double>(d) * static_cast<double>(2 * shape.query_len + 3 * shape.key_len + d)};
  }

 private:
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
  result.traits = {.causal_ok = true, .cross_ok = true, .appended_padding_exact = true};
  result.options = schema().options();
  result.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<LinearCore>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::linear
