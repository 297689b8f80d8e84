// Hydra attention: Bolya, Fu, Dai, Zhang, Hoffman, "Hydra Attention: Efficient Attention with Many Heads", ECCV 2022
// workshops (arXiv 2209.07484), equations 6 and 7: as many heads as channels, so that a head is a number and the sum
// over keys a vector,
//   o_i = phi(q_i) * sum_j phi(k_j) * v_j,   phi(x) = x / |x|,   * by channel
// over valid keys j (causal: j <= i). |x| is that of all heads' channels together; under mrs-, of those of a scale.
#include "attention/descriptor.h"

namespace xformer::attention::variants::hydra {

// The initialisers are the defaults.
struct Options {
  double epsilon = 1e-6;
};

class HydraCore : public AttentionCore {
 public:
  explicit HydraCore(const Options& options) : options_(options) {}

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    at::Tensor read = normalised(k) * v;
    if (!mask.all_valid()) read = read * mask.as_factor(read.scalar_type());  // padded keys weigh nothing
    return normalised(q) * (mask.causal ? read.cumsum(2) : read.sum(2, /*keepdim=*/true));
  }

  // No matrix products.
  [[nodiscard]] Cost cost(const Shape& shape) const override {
    return {0, 0, 4 * static_cast<double>(shape.batch * shape.heads * shape.query_len * shape.head_dim)};
  }

 private:
  [[nodiscard]] at::Tensor normalised(const at::Tensor& x) const {
    return x * ((x * x).sum({1, 3}, /*keepdim=*/true) + options_.epsilon).rsqrt();
  }

  Options options_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>().add(&Options::epsilon, "epsilon", "added to the square of a row's length", above(0));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.title = "Hydra attention";
  result.paper = "Bolya, Fu, Dai, Zhang, Hoffman: Hydra Attention: Efficient Attention with Many Heads, 2022";
  result.method_class = "KR";
  result.summary = "A head for every channel: one vector of sums over all keys, gated by the query.";
  result.complexity = Complexity::kLinear;
  result.traits = {.causal_ok = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  result.build_core = [](const Json& options, const BuildContext&) {
    return std::make_shared<HydraCore>(schema().read(options));
  };
  return {result};
}

}  // namespace xformer::attention::variants::hydra
