// Random feature attention: Peng, Pappas, Yogatama, Schwartz, Smith, Kong, ICLR 2021. Queries and keys of unit length
// go through random features with a learned scale sigma for every channel of a head (sections 3.1 and A.2):
//   x' = sigma x / sqrt(|x|^2 + 1e-6),   y = W x',   W [R, d] with N(0, 1) in it
//   rfa-gaussian  phi = R^(-1/2) [sin y; cos y]   E phi(q) phi(k) = exp(-|q' - k'|^2 / 2), at sigma = s the softmax of
//                 unit vectors with logits s^2 cos
//   rfa-arccos    phi = R^(-1/2) relu(y)          E phi(q) phi(k) = (sin a + (pi - a) cos a) / (2 pi) at sigma = 1
//   o_i = phi(q_i)^T sum_j phi(k_j) v_j^T / den_i,   den_i = phi(q_i)^T sum_j phi(k_j)
// over valid keys (causal: j <= i). The paper divides W by sigma; that is the kernel it names at sigma = 1 alone. Sines
// and cosines can cancel: den keeps its sign and is at least 1e-3 in size; rfa-arccos adds 1e-7 (attention-third 10).
// W is drawn anew every `redraw` training steps (section 3.1); evaluation has draws of its own, which stay.
//
// `gate` (causal only, section 3.2): with g_i = sigmoid(w_g x_i + b_g) of a head,
//   S_i = g_i S_(i-1) + (1 - g_i) phi(k_i) v_i^T, and the sums of keys alike:
// key j weighs (1 - g_j) exp(L_i - L_j) phi(q_i) phi(k_j), L the running sum of log g. Padding leaves both as they are.
#include <ATen/Functions.h>

#include <cmath>

#include "attention/descriptor.h"
#include "attention/multi_head.h"
#include "attention/shared/full_precision.h"
#include "attention/shared/kernel_sums.h"
#include "attention/shared/random_features.h"
#include "kernels/batched_product/batched_product.h"
#include "kernels/sine_features/sine_features.h"
#include "kernels/unit_rows/unit_rows.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::rfa {

constexpr double kLength = 1e-6;   // under the root of a vector's length
constexpr double kFloor = 1e-3;    // of the size of den
constexpr double kEpsilon = 1e-7;  // added to den of rfa-arccos
constexpr double kGateStart = 0.9;

struct Options {
  int64_t features = 64;
  int64_t redraw = 1;
  bool gate = false;
};

enum class Map { kGaussian, kArccos };

class RfaCore : public AttentionCore, public DecodingCore {
 public:
  RfaCore(Map map, const Options& options, const BuildContext& context) : map_(map), causal_(context.causal) {
    sigma_ = register_parameter("sigma", at::ones({context.heads, context.head_dim}));
    const auto draw = [features = options.features, d = context.head_dim](Stream numbers) {
      at::Tensor result = at::empty({features, d}, at::kDouble);
      double* const values = result.data_ptr<double>();
      for (int64_t i = 0; i < features * d; ++i) values[i] = next_normal(numbers);
      return result.to(at::kFloat);
    };
    trained_ = RandomFeatures("rfa", "omega", options.redraw, context, draw);
    evaluated_ = options.redraw > 0 ? RandomFeatures("rfa", "evaluation", 0, context, draw) : trained_;
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    return mix(q, k, v, mask, {});
  }

  at::Tensor decode(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const DecodingStep& step,
                    State& kept) override {
    return decode_gated(q, k, v, {}, step, kept);
  }

  // gate [b,h,n]: logits of g, or undefined.
  [[nodiscard]] at::Tensor mix(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v,
                               const SequenceMask& mask, const at::Tensor& gate) const {
    const at::Tensor q = scaled(q_in), k = scaled(k_in);
    if (map_ == Map::kArccos && !gate.defined()) {
      kernels::FeatureAttentionOptions options;
      options.map = kernels::FeatureMap::kRelu;
      options.omega = directions(q);
      options.scale = shrink();
      options.epsilon = kEpsilon;
      return feature_attention(q, k, v, mask, options);
    }
    const at::Tensor phi_q = features(q), phi_k = features(k), values = values_and_count(v, mask);
    probe("phi_q", phi_q), probe("phi_k", phi_k);
    at::Tensor sums;  // [b,h,n,d+1]
    if (gate.defined()) {
      probe("gate", at::sigmoid(gate));
      at::Tensor kept = at::log_sigmoid(gate);
      if (!mask.all_valid()) kept = kept.masked_fill(mask.key_valid.logical_not().unsqueeze(1), 0);
      sums =
          causal_kernel_sums(phi_q, phi_k * at::sigmoid(-gate).unsqueeze(-1), values, -kept.cumsum(-1).unsqueeze(-1));
    } else if (mask.causal) {
      sums = causal_kernel_sums(phi_q, phi_k, values);
    } else {
      sums = kernels::batched_product(phi_q, kernels::batched_product(phi_k.transpose(-1, -2), values));
    }
    return averages(sums);
  }

  // The row of the token at hand; S and the sum of keys are kept as the columns of one.
  [[nodiscard]] at::Tensor decode_gated(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                        const at::Tensor& gate, const DecodingStep& step, State& kept) const {
    at::Tensor phi_k = features(scaled(k));
    if (gate.defined()) {
      const at::Tensor sum = at::log_sigmoid(gate).cumsum(-1), last = sum.narrow(-1, sum.size(-1) - 1, 1);  // L
      phi_k = phi_k * (at::sigmoid(-gate) * at::exp(last - sum)).unsqueeze(-1);
      if (step.first > 0) kept["sums"] = kept.at("sums") * at::exp(last).unsqueeze(-1);
    }
    const at::Tensor& sums =
        add_kept(kept, "sums", at::matmul(phi_k.transpose(-1, -2), values_and_count(v, {})), step);  // [b,h,f,d+1]
    if (q.size(2) > 1) return mix(q, k, v, {{}, /*causal=*/true}, gate);
    return averages(at::matmul(features(scaled(q)), sums));
  }

  [[nodiscard]] Cost cost(const Shape& shape) const override { return cost_of(shape, map_ == Map::kArccos); }

  // By the operator, or by tensor operations, as every gate and the other map are.
  [[nodiscard]] Cost cost_of(const Shape& shape, bool fused) const {
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    const double rows = static_cast<double>(shape.query_len + shape.key_len);
    const int64_t directions = trained_.omega.size(0), f = map_ == Map::kArccos ? directions : 2 * directions;
    const double projection = 2 * z * rows * d * static_cast<double>(directions);
    // The plain form keeps y and features of every row.
    const double plain = z * rows * static_cast<double>(directions + f);
    const int64_t columns = shape.head_dim + 1;
    Cost result =
        fused ? feature_attention_cost(shape, f, columns, causal_)
              : Cost{kernel_sums_flops(shape, f, columns, causal_), kernel_sums_flops(shape, f, columns, false), plain};
    result.flops_executed += projection;
    result.flops_pattern += projection;
    return result;
  }

  void after_step(int64_t step) override { trained_.after_step(step); }

 private:
  // x' [b,h,n,d]
  [[nodiscard]] at::Tensor scaled(const at::Tensor& x) const { return kernels::unit_rows(x, sigma_, kLength); }

  [[nodiscard]] at::Tensor directions(const at::Tensor& like) const {
    return (is_training() ? trained_ : evaluated_).omega.to(like.scalar_type());
  }
  [[nodiscard]] double shrink() const { return 1 / std::sqrt(static_cast<double>(trained_.omega.size(0))); }

  // phi(x) of x' [b,h,n,d]: [b,h,n,f].
  [[nodiscard]] at::Tensor features(const at::Tensor& x) const {
    const at::Tensor y = at::matmul(x, directions(x).t());
    return map_ == Map::kArccos ? at::relu(y) * shrink() : kernels::sine_features(y, shrink());
  }

  // Sums of values and of keys [b,h,n,d+1] -> o [b,h,n,d].
  [[nodiscard]] at::Tensor averages(const at::Tensor& sums) const {
    const int64_t d = sums.size(-1) - 1;
    const at::Tensor denominator = sums.narrow(-1, d, 1);
    probe("denominator", denominator);
    return sums.narrow(-1, 0, d) / safe(denominator);
  }

  [[nodiscard]] at::Tensor safe(const at::Tensor& denominator) const {
    if (map_ == Map::kArccos) return denominator + kEpsilon;
    const at::Tensor least = (denominator.ge(0).to(denominator.scalar_type()) * 2 - 1) * kFloor;
    return at::where(denominator.abs().lt(kFloor), least, denominator);
  }

  Map map_;
  bool causal_;
  RandomFeatures trained_, evaluated_;
  at::Tensor sigma_;  // [h,d]
};

// The gated form reads x beside queries, keys and values.
class GatedMixer : public SequenceMixer, public DecodingMixer {
 public:
  GatedMixer(Map map, const Options& options, const BuildContext& context)
      : model_dim_(context.model_dim), heads_(context.heads), head_dim_(context.head_dim) {
    XF_CHECK(context.causal, UserError,
             "attention.gate: a gate forgets what came before, and only causal attention has a before; expected false");
    const int64_t inner = heads_ * head_dim_;
    const auto linear = [&](const char* name, int64_t in, int64_t out, bool bias) {
      return register_module(name,
                             std::make_shared<Linear>(in, out, bias, context.init_scheme, context.init.child(name)));
    };
    query_ = linear("query", model_dim_, inner, context.bias);
    key_ = linear("key", model_dim_, inner, context.bias);
    value_ = linear("value", model_dim_, inner, context.bias);
    gate_ = linear("gate", model_dim_, heads_, true);
    out_ = linear("out", inner, model_dim_, context.bias);
    core_ = register_module("core", std::make_shared<RfaCore>(map, options, context));
    const at::NoGradGuard no_grad;
    gate_->bias.fill_(std::log(kGateStart / (1 - kGateStart)));
  }

  at::Tensor forward(const at::Tensor& x, const SequenceMask& mask, Carry&) override {
    return between_maps(x, [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& gate) {
      return mask.zero_padding(core_->mix(q, k, v, mask, gate));
    });
  }

  at::Tensor decode(const at::Tensor& x, const DecodingStep& step, Carry&, State& kept) override {
    return between_maps(x, [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& gate) {
      return core_->decode_gated(q, k, v, gate, step, kept);
    });
  }

  [[nodiscard]] Cost cost(int64_t batch, int64_t length) const override {
    Cost result = core_->cost_of({batch, heads_, length, length, head_dim_}, /*fused=*/false);
    const double maps =
        2.0 * static_cast<double>(batch * length * model_dim_ * heads_) * static_cast<double>(4 * head_dim_ + 1);
    result.flops_executed += maps;
    result.flops_pattern += maps;
    return result;
  }

 private:
  // core: q, k, v [b,h,n,d] and the gate's logits [b,h,n] -> [b,h,n,d].
  template <class Core>
  at::Tensor between_maps(const at::Tensor& x, const Core& core) {
    const int64_t b = x.size(0), n = x.size(1);
    at::Tensor q = query_->forward(x), k = key_->forward(x), v = value_->forward(x), gate = gate_->forward(x), mixed;
    {
      const FullPrecision full(x.device().type());
      const auto split = [&](const at::Tensor& rows) {  // [b, n, h d] -> [b, h, n, d]
        return full(rows).view({b, n, heads_, -1}).transpose(1, 2);
      };
      q = split(q), k = split(k), v = split(v);
      probe("q", q), probe("k", k), probe("v", v);
      mixed = core(q, k, v, split(gate).squeeze(-1));
    }
    probe("mixed", mixed);
    return out_->forward(mixed.transpose(1, 2).reshape({b, n, heads_ * head_dim_}));
  }

  int64_t model_dim_, heads_, head_dim_;
  std::shared_ptr<Linear> query_, key_, value_, gate_, out_;
  std::shared_ptr<RfaCore> core_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::features, "features", kFeaturesHelp, at_least(1))
          .add(&Options::redraw, "redraw", kRedrawHelp, at_least(0))
          .add(&Options::gate, "gate", "forget earlier keys by a learned gate; causal attention only");
  return kSchema;
}

std::vector<Descriptor> describe() {
  const auto variant = [](const char* name, const char* title, const char* summary, Map map) {
    Descriptor result;
    result.name = name;
    result.title = title;
    result.paper = "Peng, Pappas, Yogatama, Schwartz, Smith, Kong: Random Feature Attention, 2021";
    result.method_class = "KR";
    result.summary = summary;
    result.complexity = Complexity::kLinear;
    result.traits = {.causal_ok = true, .cross_ok = true};
    result.appended_padding = always_exact();
    result.options = schema().options();
    result.tensors = {{"sigma", "sigma: scale of each channel before the random directions [h, d]"},
                      {"rfa_omega", "W: random directions in training, the same for all heads [R, d]"},
                      {"rfa_evaluation", "W of evaluation, where training draws new ones [R, d]"},
                      {"gate.weight", "w_g of g = sigmoid(x w_g^T + bias) [h, m], with gate=true"},
                      {"gate.bias", "b_g of g [h], with gate=true"}};
    result.build_core = [map](const Json& options, const BuildContext& context) -> std::shared_ptr<AttentionCore> {
      const Options own = schema().read(options);
      XF_CHECK(!own.gate, UserError,
               "attention.gate: the gate reads what stands before the projections, which neither mrs- nor a core by "
               "itself has; expected false");
      return std::make_shared<RfaCore>(map, own, context);
    };
    result.build_mixer = [map](const Json& options, const BuildContext& context) -> std::shared_ptr<SequenceMixer> {
      const Options own = schema().read(options);
      if (own.gate) return std::make_shared<GatedMixer>(map, own, context);
      return std::make_shared<MultiHeadMixer>(context, std::make_shared<RfaCore>(map, own, context));
    };
    return result;
  };
  Descriptor gaussian = variant("rfa-gaussian", "Random feature attention",
                                "Sines and cosines of random directions estimate the softmax of unit vectors; keys and "
                                "values are summed once.",
                                Map::kGaussian);
  gaussian.aliases = {"rfa", "random-feature-attention"};
  return {gaussian, variant("rfa-arccos", "Random feature attention, arc-cosine kernel",
                            "Random directions through ReLU estimate an arc-cosine kernel; keys and values are summed "
                            "once.",
                            Map::kArccos)};
}

}  // namespace xformer::attention::variants::rfa
