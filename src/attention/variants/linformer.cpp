// Linformer: Wang, Li, Khabsa, Fang, Ma, "Linformer: Self-Attention with Linear Complexity", 2020, equation 7:
//   O = softmax(Q (E K)^T / sqrt(d)) (F V),   E and F of k rows over the sequence.
// Padded keys are zeroed before E and F (the k mixtures have no validity); for n < N_max the columns beyond n are cut.
#include <algorithm>
#include <cmath>

#include "attention/descriptor.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::linformer {

struct Options {
  int64_t projected_len = 256;
  std::string sharing = "mlpen";
};

class LinformerCore : public AttentionCore {
 public:
  LinformerCore(const Options& options, const BuildContext& context)
      : max_len_(context.max_len),
        rows_(std::min(options.projected_len, context.max_len)),
        dropout_(context.make_dropout()) {
    XF_ASSERT(max_len_ > 0, "linformer needs the longest length when it is built");
    const bool per_head = options.sharing == "mlpen" || options.sharing == "none";
    const bool all_layers = options.sharing == "mlpen" || options.sharing == "layerwise";
    const auto draw = [&](const std::string& name) {  // N(0, 1/k): rows keep lengths, as Johnson and Lindenstrauss
      return context.init.normal(name, {per_head ? context.heads : 1, rows_, max_len_},
                                 1 / std::sqrt(static_cast<double>(rows_)));
    };
    // What all layers share belongs to the model; the rest to this layer.
    if (all_layers) e_ = context.shared_parameter("linformer/e", [&] { return draw("e"); });
    else e_ = register_parameter("e", draw("e"));
    if (options.sharing == "headwise" || options.sharing == "none") f_ = register_parameter("f", draw("f"));
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    const int64_t d = q.size(-1);
    XF_CHECK(k.size(2) <= max_len_, UserError, "linformer was built for at most {} tokens, got {}", max_len_,
             k.size(2));
    const auto valid = [&](const at::Tensor& x) { return mask.all_valid() ? x : x * mask.as_factor(x.scalar_type()); };
    at::Tensor short_k, short_v;  // [b,h,k,d]
    if (f_.defined()) {
      short_k = project(e_, valid(k));
      short_v = project(f_, valid(v));
    } else {
      const at::Tensor both = project(e_, valid(at::cat({k, v}, -1)));
      short_k = both.narrow(-1, 0, d);
      short_v = both.narrow(-1, d, v.size(-1));
    }
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    const at::Tensor weights = at::softmax(at::matmul(q * scale, short_k.transpose(-1, -2)), -1);  // [b,h,n,k]
    probe("short_k", short_k), probe("short_v", short_v), probe("weights", weights);
    return at::matmul(dropout_(weights, is_training()), short_v);
  }

  // 4 Z n k d for E K and F V, 4 Z n k d for scores and mixing.
  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const double z = static_cast<double>(shape.batch * shape.heads), k = static_cast<double>(rows_);
    const double d = static_cast<double>(shape.head_dim), queries = static_cast<double>(shape.query_len);
    const double flops = 4 * z * k * d * (queries + static_cast<double>(shape.key_len));
    return {flops, flops, 2 * z * k * (queries + d)};
  }

 private:
  // projection [h or 1, k, N_max], x [b,h,n,c] -> [b,h,k,c]. The batch goes into the columns of one product per
  // head: a batched product would copy the projection once per sample.
  static at::Tensor project(const at::Tensor& projection, const at::Tensor& x) {
    const int64_t b = x.size(0), h = x.size(1), n = x.size(2), c = x.size(3), k = projection.size(1);
    const at::Tensor used = projection.narrow(2, 0, n);
    if (projection.size(0) == 1)
      return at::mm(used[0], x.permute({2, 0, 1, 3}).reshape({n, b * h * c})).view({k, b, h, c}).permute({1, 2, 0, 3});
    return at::bmm(used, x.permute({1, 2, 0, 3}).reshape({h, n, b * c})).view({h, k, b, c}).permute({2, 0, 1, 3});
  }

  int64_t max_len_, rows_;
  kernels::Dropout dropout_;
  at::Tensor e_, f_;  // [h or 1, k, N_max]; f_ undefined when it is e_
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::projected_len, "projected_len",
               "length that keys and values are brought to (k); at most the sequence's", at_least(1))
          .add(&Options::sharing, "sharing",
               "who shares the projections: mlpen (one per head for all layers, keys and values), layerwise (one for "
               "everything), kv (one per layer), headwise (per layer: one for keys, one for values), none (and per "
               "head)",
               one_of({"mlpen", "layerwise", "kv", "headwise", "none"}));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "linformer";
  result.title = "Linformer";
  result.paper = "Wang, Li, Khabsa, Fang, Ma: Linformer: Self-Attention with Linear Complexity, 2020";
  result.method_class = "LR";
  result.summary = "Brings keys and values to a fixed length by a learned projection along the sequence.";
  result.complexity = Complexity::kLinear;
  result.traits = {.cross_ok = true, .appended_padding_exact = true, .fixed_length = true};
  result.options = schema().options();
  result.tensors = {{"linformer_e", "E, and F too: mixtures over the sequence, of all layers [heads or 1, k, N_max]"},
                    {"e", "E, and F where there is no f: mixtures over the sequence [heads or 1, k, N_max]"},
                    {"f", "F: mixtures over the sequence, of values [heads or 1, k, N_max]"}};
  result.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<LinformerCore>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::linformer
