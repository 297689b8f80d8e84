// Linformer: Wang, Li, Khabsa, Fang, Ma, "Linformer: Self-Attention with Linear Complexity", 2020, equation 7:
//   O = softmax(Q (E K)^T / sqrt(d)) (F V),   E and F of k rows over the sequence.
// With share_kv V = K and F = E.
// Padded keys are zeroed before E and F (the k mixtures have no validity); for n < N_max the columns beyond n are cut.
#include <algorithm>
#include <cmath>

#include "attention/multi_head.h"
#include "kernels/attention/attention.h"
#include "kernels/token_projection/token_projection.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::linformer {

struct Options {
  int64_t projected_len = 256;
  std::string sharing = "mlpen";
  bool share_kv = false;
};

class LinformerCore : public AttentionCore {
 public:
  LinformerCore(const Options& options, const BuildContext& context)
      : max_len_(context.max_len),
        rows_(std::min(options.projected_len, context.max_len)),
        share_kv_(options.share_kv),
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
    at::Tensor short_k, short_v;  // [b,h,k,d]
    if (share_kv_) {
      short_k = short_v = kernels::project_tokens(e_, k, {}, mask).x;
    } else if (f_.defined()) {
      short_k = kernels::project_tokens(e_, k, {}, mask).x;
      short_v = kernels::project_tokens(f_, v, {}, mask).x;
    } else {
      const kernels::TokenMixtures both = kernels::project_tokens(e_, k, v, mask);
      short_k = both.x, short_v = both.y;
    }
    probe("short_k", short_k), probe("short_v", short_v);
    kernels::AttentionOptions options;
    options.scale = 1 / std::sqrt(static_cast<double>(d));
    options.query_valid = mask.query_valid(q.size(2));
    options.dropout = dropout_.place(is_training());
    return kernels::attention(q, short_k, short_v, options);
  }

  [[nodiscard]] bool zeroes_padding() const override { return true; }
  [[nodiscard]] bool takes_bf16() const override { return true; }
  [[nodiscard]] bool takes_half_on_devices(const at::Tensor& /*q*/) const override { return true; }

  // 4 Z n k d for E K and F V (half of it for E K alone), 4 Z n k d for scores and mixing. Kept are q, k, v, their
  // mixtures, the output and a log-sum for each row.
  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const double z = static_cast<double>(shape.batch * shape.heads), k = static_cast<double>(rows_);
    const double d = static_cast<double>(shape.head_dim), queries = static_cast<double>(shape.query_len);
    const double keys = static_cast<double>(shape.key_len), mixed = share_kv_ ? 1 : 2;  // keys, and values
    const double flops = 2 * z * k * d * (2 * queries + mixed * keys);
    return {flops, flops, z * (2 * d * queries + mixed * d * (keys + k) + queries)};
  }

 private:
  int64_t max_len_, rows_;
  bool share_kv_;
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
               one_of({"mlpen", "layerwise", "kv", "headwise", "none"}))
          .add(&Options::share_kv, "share_kv",
               "values are the keys, with one map and one projection for both (lucidrains/linformer)")
          .added(false);
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
  result.traits = {.cross_ok = true, .fixed_length = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  result.tensors = {{"linformer_e", "E, and F too: mixtures over the sequence, of all layers [heads or 1, k, N_max]"},
                    {"e", "E, and F where there is no f: mixtures over the sequence [heads or 1, k, N_max]"},
                    {"f", "F: mixtures over the sequence, of values [heads or 1, k, N_max]"}};
  result.build_core = [](const Json& options, const BuildContext& context) {
    const Options own = schema().read(options);
    XF_CHECK(!own.share_kv, UserError,
             "attention.share_kv: attention to another sequence, and a core by itself, is given values of their own, "
             "which it would not read; expected false");
    return std::make_shared<LinformerCore>(own, context);
  };
  result.build_mixer = [](const Json& options, const BuildContext& context) {
    const Options own = schema().read(options);
    return std::make_shared<MultiHeadMixer>(context, std::make_shared<LinformerCore>(own, context),
                                            own.share_kv ? Values::kKeys : Values::kProjected);
  };
  result.check = [](const Json& options, int64_t heads) {
    const Options own = schema().read(options);
    XF_CHECK(!own.share_kv || heads > 0, UserError,
             "attention.share_kv: a decorator's heads have values of their own; expected false");
    XF_CHECK(!own.share_kv || (own.sharing != "headwise" && own.sharing != "none"), UserError,
             "attention.share_kv: keys that are the values have one projection; expected attention.sharing mlpen, "
             "layerwise or kv, got {}",
             own.sharing);
  };
  return {result};
}

}  // namespace xformer::attention::variants::linformer
