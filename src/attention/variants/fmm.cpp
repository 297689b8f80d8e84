// FMMformer: Nguyen, Suliafu, Osher, Chen, Wang, "FMMformer: Efficient and Flexible Transformer via Decomposed
// Near-field and Far-field Attention", NeurIPS 2021:
//   O = w1 * Near + w2 * Far,   Near = softmax(q k / sqrt(d)) over |i - j| < band (causal: and j <= i)
//   Far = sum_l a_l phi_l(q_i)^T S_l / (phi_l(q_i)^T z_l + eps),   S_l = sum_j phi_l(k_j) v_j^T, z_l = sum_j phi_l(k_j)
// The choices of w1, w2 and a_l are those of the published code, by its numbers for them (`sparse_ratio`):
//   both-head 11.5, 13.5         w1 = 1 and w2 = 0 of each head
//   far-elem 4.5, 16.5, 17.5     w2 = 0 of each number of the output, w1 fixed at 1
//   near-head 18.5, 19.5         w1 = 0 of each head, w2 fixed at 1
//   convex 2.5, 14.5, 15.5       one w1 = 1/2 for all, w2 = 1 - w1
//   near 6.5, far 7.5            one field alone
//   two kernels                  a learned from (1, 0) in 13.5, 14.5, 16.5, 19.5; 1 and learned from 0 in 15.5, 17.5;
//                                else fixed at 1/2
// That code's celu is celu + 1, which equals elu + 1. Its near field is dense (near_field = dense): it forms [n, n].
#include <cmath>

#include "attention/descriptor.h"
#include "attention/shared/kernel_sums.h"
#include "attention/shared/windows.h"
#include "kernels/batched_product/batched_product.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::fmm {

constexpr double kEpsilon = 1e-6;  // of the far field's denominator

struct Options {
  int64_t band = 5;
  std::string near_field = "banded";
  std::string kernels = "elu";
  std::string kernel_weights = "learned";
  std::string blend = "both-head";
  std::string norm = "sum";
};

at::Tensor features(const std::string& kernel, const at::Tensor& x) {
  if (kernel == "elu" || kernel == "celu") return at::elu(x) + 1;
  if (kernel == "elu-flip") return at::elu(-x) + 1;
  if (kernel == "tanh") return 1 + at::tanh(x);
  if (kernel == "tanh-orthogonal") return 1 - at::tanh(x);
  if (kernel == "relu") return at::relu(x);
  if (kernel == "sigmoid") return at::sigmoid(x);
  if (kernel == "softplus") return at::softplus(x);
  XF_ASSERT(kernel == "leaky-relu", "no kernel '{}'", kernel);
  return at::leaky_relu(x) + 1;
}

std::vector<std::string> split_kernels(const std::string& joined) {
  const size_t plus = joined.find('+');
  if (plus == std::string::npos) return {joined};
  return {joined.substr(0, plus), joined.substr(plus + 1)};
}

class FmmCore : public AttentionCore {
 public:
  FmmCore(const Options& options, const BuildContext& context)
      : options_(options),
        kernels_(split_kernels(options.kernels)),
        has_near_(options.blend != "far"),
        has_far_(options.blend != "near"),
        causal_(context.causal),
        dropout_(context.make_dropout()) {
    const int64_t h = context.heads;
    const std::string& blend = options.blend;
    if (blend == "both-head") near_weight_ = register_parameter("near_weight", at::ones({h, 1, 1}));
    if (blend == "near-head") near_weight_ = register_parameter("near_weight", at::zeros({h, 1, 1}));
    if (blend == "convex") near_weight_ = register_parameter("near_weight", at::full({1}, 0.5));
    if (blend == "both-head") far_weight_ = register_parameter("far_weight", at::zeros({h, 1, 1}));
    if (blend == "far-elem") far_weight_ = register_parameter("far_weight", at::zeros({h, 1, context.head_dim}));
    if (!has_far_ || kernels_.size() == 1 || options.kernel_weights == "equal") return;
    // All of them from (1, 0), or all but the first, which stays 1.
    at::Tensor start = at::zeros({static_cast<int64_t>(kernels_.size())});
    start[0] = 1;
    if (options.kernel_weights == "first-fixed") start = start.narrow(0, 1, start.size(0) - 1).clone();
    kernel_weights_ = register_parameter("kernel_weights", start);
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    at::Tensor near, far;
    if (has_near_) {
      near = window_attention(q, k, v, mask.key_valid, windows(q.size(2), mask.causal), dropout_, is_training());
      probe("near", near);
    }
    if (has_far_) {
      far = far_field(q, k, v, mask);
      probe("far", far);
    }
    if (!has_near_ || !has_far_) return has_near_ ? near : far;
    if (options_.blend == "convex") return near_weight_ * near + (1 - near_weight_) * far;
    if (near_weight_.defined()) near = near_weight_ * near;
    return near + (far_weight_.defined() ? far_weight_ * far : far);
  }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    const double n = static_cast<double>(shape.query_len);
    Cost result;
    if (has_near_) {
      const Windows near = windows(shape.query_len, causal_);
      result += {4 * z * d * near.executed_pairs(), 4 * z * d * near.pattern_pairs(), kept_of_windows(z, n, d)};
    }
    const int64_t columns = shape.head_dim + (options_.norm == "sum" ? 1 : 0);
    for (size_t i = 0; has_far_ && i < kernels_.size(); ++i)
      result += {kernel_sums_flops(shape, shape.head_dim, columns, causal_),
                 kernel_sums_flops(shape, shape.head_dim, columns, false), z * d * (5 * n + d)};
    return result;
  }

 private:
  // The dense near field is one block as long as the sequence.
  [[nodiscard]] Windows windows(int64_t n, bool causal) const {
    const int64_t reach = options_.band - 1;
    Windows result = Windows::sliding(n, reach, causal ? 0 : reach);
    if (options_.near_field == "dense")
      result = Windows{.length = n, .block = n, .back = result.back, .ahead = result.ahead};
    return result;
  }

  [[nodiscard]] at::Tensor far_field(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const SequenceMask& mask) const {
    const bool by_sum = options_.norm == "sum";
    at::Tensor values;  // padded rows are zero, so phi(k) needs no mask of its own
    if (by_sum) values = values_and_count(v, mask);
    else values = mask.all_valid() ? v : v * mask.as_factor(v.scalar_type());
    at::Tensor total;
    for (size_t i = 0; i < kernels_.size(); ++i) {
      const at::Tensor phi_q = features(kernels_[i], q), phi_k = features(kernels_[i], k);
      const at::Tensor sums =
          mask.causal ? causal_kernel_sums(phi_q, phi_k, values)
                      : kernels::batched_product(phi_q, kernels::batched_product(phi_k.transpose(-1, -2), values));
      const int64_t d = v.size(-1);
      at::Tensor part = by_sum ? sums.narrow(-1, 0, d) / (sums.narrow(-1, d, 1) + kEpsilon)
                               : sums / std::sqrt(static_cast<double>(k.size(2)));
      const auto learned = static_cast<int64_t>(i) - (options_.kernel_weights == "first-fixed" ? 1 : 0);
      if (kernel_weights_.defined() && learned >= 0) part = part * kernel_weights_[learned];
      if (options_.kernel_weights == "equal") part = part / static_cast<double>(kernels_.size());
      total = total.defined() ? total + part : part;
    }
    return total;
  }

  Options options_;
  std::vector<std::string> kernels_;
  bool has_near_, has_far_, causal_;
  kernels::Dropout dropout_;
  at::Tensor near_weight_;     // w1 [h,1,1] or [1]; undefined: 1
  at::Tensor far_weight_;      // w2 [h,1,1] or [h,1,d]; undefined: 1, or 1 - w1
  at::Tensor kernel_weights_;  // a [kernels], or [kernels - 1] without the first, which is 1
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::band, "band", "keys less than so many steps away form the near field", at_least(1))
          .add(&Options::near_field, "near_field",
               "how the near field is computed: banded (products of small blocks) or dense (all pairs, as published)",
               one_of({"banded", "dense"}))
          .add(&Options::kernels, "kernels", "features of the far field (phi), one kernel or two",
               one_of({"elu", "elu-flip", "tanh", "tanh-orthogonal", "relu", "sigmoid", "softplus", "celu",
                       "leaky-relu", "elu+elu-flip", "elu+tanh", "tanh+tanh-orthogonal"}))
          .add(&Options::kernel_weights, "kernel_weights",
               "weights of two kernels: learned (both, from 1 and 0), first-fixed (the first is 1, the second learned "
               "from 0), equal (1/2 each)",
               one_of({"learned", "first-fixed", "equal"}))
          .add(&Options::blend, "blend",
               "weights of the fields: both-head (of each head, from 1 near and 0 far), far-elem (near 1, far of each "
               "number from 0), near-head (near of each head from 0, far 1), convex (w and 1 - w, from 1/2), near, far",
               one_of({"both-head", "far-elem", "near-head", "convex", "near", "far"}))
          .add(&Options::norm, "norm",
               "what kernel attention is divided by: sum (of a row's weights), sqrt-n (root of the padded length, no "
               "sum)",
               one_of({"sum", "sqrt-n"}));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "fmm";
  result.title = "FMMformer";
  result.paper =
      "Nguyen, Suliafu, Osher, Chen, Wang: FMMformer: Efficient and Flexible Transformer via Decomposed Near-field and "
      "Far-field Attention, 2021";
  result.method_class = "MR";
  result.summary = "Softmax over a band of near keys plus kernel attention over all, blended by learned weights.";
  result.complexity = Complexity::kLinear;
  result.traits = {.causal_ok = true};
  result.appended_padding = {"with norm=sum or blend=near", [](const Json& options) {
                               return options["norm"] == "sum" || options["blend"] == "near";
                             }};
  result.options = schema().options();
  result.tensors = {{"near_weight", "w1 of the near field [heads, 1, 1], or one number (convex)"},
                    {"far_weight", "w2 of the far field [heads, 1, 1], or [heads, 1, d] (far-elem)"},
                    {"kernel_weights",
                     "a: share of each kernel in the far field [kernels]; without the first where that "
                     "is fixed"}};
  result.dense_limit = Json{{"blend", "near"}, {"band", int64_t{1} << 40}};
  result.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<FmmCore>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::fmm
