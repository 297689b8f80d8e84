// Luna: Ma, Kong, Wang, Zhou, May, Ma, Zettlemoyer, "Luna: Linear Unified Nested Attention", NeurIPS 2021, section
// 3.1 (pack and unpack attention). A short sequence P of l rows, learned at first, goes from layer to layer beside X:
//   Y_P = Attn(LN(P) W_pq, X W_pk, X W_pv)      packs the sequence, over its valid tokens
//   Y_X = Attn(X W_q, Y_P W_k, Y_P W_v)         unpacks it: every token reads the l rows
//   P' = P + drop(Y_P)
// The mixer around the core owns W_q, W_pk and W_pv (its query, key and value) and W_o; the core owns the rest. There
// is no output map on Y_P. Under mrs- each scale has a P of its own, as wide as its heads together.
// As published: W_pq, W_k and W_v start as Xavier with gain 1/sqrt(2), the first P as N(0, 1/c).
// Axis letters: l packed rows, c = h d.
#include <cmath>

#include "attention/descriptor.h"
#include "attention/multi_head.h"
#include "kernels/attention/attention.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::luna {

constexpr double kNormEpsilon = 1e-5;

struct Options {
  int64_t packed_len = 16;
};

class LunaCore : public AttentionCore {
 public:
  LunaCore(const Options& options, const BuildContext& context)
      : packed_len_(options.packed_len),
        width_(context.heads * context.head_dim),
        carried_(context.scope + "luna/packed"),
        pack_dropout_(context.make_dropout()),
        unpack_dropout_(context.make_dropout()),
        residual_dropout_(context.make_dropout()) {
    const double root = std::sqrt(static_cast<double>(width_));
    first_ = context.shared_parameter("luna/first", [&] {
      return context.init.normal("first", {packed_len_, width_}, 1 / root);
    });
    norm_weight_ = register_parameter("norm_weight", at::ones({width_}));
    norm_bias_ = register_parameter("norm_bias", at::zeros({width_}));
    const auto map = [&](const char* name) {
      const InitStream init = context.init.child(name);
      auto result = std::make_shared<Linear>(width_, width_, context.bias, context.init_scheme, init);
      const double bound = std::sqrt(1.5) / root;
      const at::NoGradGuard no_grad;
      result->weight.copy_(init.uniform("weight", {width_, width_}, -bound, bound));
      return register_module(name, result);
    };
    pack_query_ = map("pack_query");
    packed_key_ = map("packed_key");
    packed_value_ = map("packed_value");
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry& carry) override {
    const int64_t b = q.size(0), h = q.size(1), d = q.size(3);
    const auto named = [](const char* name, const auto& work) {  // its weights are NAME.weights
      const ProbeScope scope(name);
      return work();
    };
    const auto split = [&](const at::Tensor& rows) { return rows.view({b, packed_len_, h, d}).transpose(1, 2); };
    const auto found = carry.find(carried_);
    const at::Tensor packed = found != carry.end() ? found->second : first_.expand({b, packed_len_, width_});

    const at::Tensor normed = at::layer_norm(packed, {width_}, norm_weight_, norm_bias_, kNormEpsilon, false);
    const at::Tensor asked = split(pack_query_->forward(normed));  // [b,h,l,d]
    kernels::AttentionOptions packing, unpacking;
    packing.scale = unpacking.scale = 1 / std::sqrt(static_cast<double>(d));
    packing.mask = mask;
    packing.dropout = pack_dropout_.place(is_training());
    const at::Tensor update = named("pack", [&] { return kernels::attention(asked, k, v, packing); })
                                  .transpose(1, 2)
                                  .reshape({b, packed_len_, width_});
    carry[carried_] = packed + residual_dropout_(update, is_training());
    probe("packed", carry[carried_]);

    const at::Tensor packed_k = split(packed_key_->forward(update)), packed_v = split(packed_value_->forward(update));
    unpacking.query_valid = mask.query_valid(q.size(2));
    unpacking.dropout = unpack_dropout_.place(is_training());
    const at::Tensor mixed = named("unpack", [&] { return kernels::attention(q, packed_k, packed_v, unpacking); });
    if (mask.all_valid()) return mixed;
    // Without any token the packed rows hold only a bias, which nobody asked for.
    return mixed.masked_fill(mask.key_valid.any(1).logical_not().view({b, 1, 1, 1}), 0);
  }

  [[nodiscard]] bool zeroes_padding() const override { return true; }
  [[nodiscard]] bool takes_bf16() const override { return true; }

  // 8 Z n l d for packing and unpacking, 6 b l c^2 for the three maps on packed rows. Kept are what both attentions
  // take and give, and a log-sum for each of their rows.
  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    const double l = static_cast<double>(packed_len_), c = static_cast<double>(width_);
    const double pairs = z * l * static_cast<double>(shape.query_len + shape.key_len);
    const double flops = 4 * pairs * d + 6 * static_cast<double>(shape.batch) * l * c * c;
    const double tokens = static_cast<double>(2 * shape.query_len + 2 * shape.key_len) + 4 * l;
    return {flops, flops, z * (d * tokens + static_cast<double>(shape.query_len) + l)};
  }

 private:
  int64_t packed_len_, width_;
  std::string carried_;  // key of P in Carry; by scale, as the shared first P
  kernels::Dropout pack_dropout_, unpack_dropout_, residual_dropout_;
  at::Tensor first_;                    // [l,c]
  at::Tensor norm_weight_, norm_bias_;  // [c]
  std::shared_ptr<Linear> pack_query_, packed_key_, packed_value_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema = Schema<Options>().add(
      &Options::packed_len, "packed_len", "rows of the packed sequence that goes from layer to layer (l)", at_least(1));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "luna";
  result.title = "Luna";
  result.paper = "Ma, Kong, Wang, Zhou, May, Ma, Zettlemoyer: Luna: Linear Unified Nested Attention, 2021";
  result.method_class = "LR";
  result.summary =
      "Packs the sequence into a few learned rows and lets every token read those; the rows go on to the "
      "next layer.";
  result.complexity = Complexity::kLinear;
  result.traits = {.cross_ok = true, .carries = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  result.tensors = {{"luna_first", "P before the first layer [l, c], c = heads times head width"},
                    {"norm_weight", "scale of the layer norm of P [c]"},
                    {"norm_bias", "shift of the layer norm of P [c]"},
                    {"pack_query.weight", "W_pq: LN(P) to the queries that pack the sequence [c, c]"},
                    {"pack_query.bias", "of the queries that pack [c]"},
                    {"packed_key.weight", "W_k: packed rows to keys [c, c]"},
                    {"packed_key.bias", "of the packed rows' keys [c]; softmax does not see it"},
                    {"packed_value.weight", "W_v: packed rows to values [c, c]"},
                    {"packed_value.bias", "of the packed rows' values [c]"}};
  result.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<LunaCore>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::luna
