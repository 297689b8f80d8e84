// Softmax attention: Vaswani et al., "Attention Is All You Need", NeurIPS 2017, equation 1:
//   O = softmax(Q K^T / sqrt(d)) V over valid keys (and, if causal, not later ones).
// Two names: `softmax` forms the [n, n] weights, as the published comparisons do; the memory of `softmax-fused` is
// linear in n. It is our operator (kernels/attention) on the CPU and, of heads up to 64 wide, on CUDA devices. Wider
// ones there are LibTorch's scaled_dot_product_attention; where it would drop weights, by a generator of its own, they
// are the operator's definition, which forms them. With `recompute` softmax keeps q, k and v alone and forms the
// weights again in the backward pass, as the Transformer of mlpen/Nystromformer does (attention_grad_checkpointing in
// its LRA/code/lra_config.py; Chen et al. 2016).
#include <ATen/SDPBackend.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "attention/decoding.h"
#include "kernels/attention/attention.h"
#include "kernels/fused.h"
#include "tensor/autocast.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::softmax {

struct Options {
  bool recompute = false;
};

// FLOPs of scores and mixing over all pairs, or over those a causal row reads: its own key and the earlier ones.
double pair_flops(const Shape& shape, bool causal) {
  const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
  const double n = static_cast<double>(shape.query_len), keys = static_cast<double>(shape.key_len);
  return 4 * z * d * (causal ? n * keys - n * (n - 1) / 2 : n * keys);
}

// Equation 1, with the [n, n] weights.
at::Tensor attend_explicitly(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                             const kernels::DropoutPlace& drop) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
  const at::Tensor weights = masked_softmax(at::matmul(q * scale, k.transpose(-1, -2)), mask);  // [b,h,n,n]
  probe("weights", weights);
  return at::matmul(drop(weights), v);
}

// The same, with nothing kept but q, k and v: a graph of it is made, and gone again, in the backward pass. Dropout is a
// function of (step, site, element), so the weights dropped there are those dropped before.
struct RecomputedFunction : torch::autograd::Function<RecomputedFunction> {
  struct Call : torch::CustomClassHolder {
    SequenceMask mask;
    kernels::DropoutPlace drop;
  };

  static at::Tensor forward(torch::autograd::AutogradContext* context, const c10::intrusive_ptr<Call>& call,
                            const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    // The state of dropout too, so that LibTorch refuses a backward pass after the next step's numbers.
    context->save_for_backward({q, k, v, call->drop.state});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return attend_explicitly(q, k, v, call->mask, call->drop);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto call = c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
    const torch::autograd::variable_list saved = context->get_saved_variables();
    torch::autograd::variable_list leaves;
    for (size_t i = 0; i < 3; ++i) leaves.push_back(saved[i].detach().requires_grad_(true));
    at::Tensor out;
    {
      const at::AutoGradMode with_graph(true);
      const AutocastScope full(leaves[0].device().type(), std::nullopt);  // as the mixer calls a core
      out = attend_explicitly(leaves[0], leaves[1], leaves[2], call->mask, {call->drop.p, saved[3], call->drop.site});
    }
    torch::autograd::variable_list result{at::Tensor()};  // nothing for the call
    for (const at::Tensor& one : torch::autograd::grad({out}, leaves, {gradients[0]})) result.push_back(one);
    return result;
  }
};

class ExplicitCore : public AttentionCore, public RowCore {
 public:
  ExplicitCore(const Options& options, const BuildContext& context)
      : recompute_(options.recompute), causal_(context.causal), dropout_(context.make_dropout()) {}

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    const kernels::DropoutPlace drop = dropout_.place(is_training());
    // Whoever captures tensors may ask for their gradients.
    if (!recompute_ || probe_recorder != nullptr) return attend_explicitly(q, k, v, mask, drop);
    auto call = c10::make_intrusive<RecomputedFunction::Call>();
    call->mask = mask;
    call->drop = drop;
    return RecomputedFunction::apply(call, q, k, v);
  }

  // Weights and the dropout's output are kept for the backward pass; with recompute queries, keys, values and output.
  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const double z = static_cast<double>(shape.batch * shape.heads), n = static_cast<double>(shape.query_len);
    const double keys = static_cast<double>(shape.key_len), d = static_cast<double>(shape.head_dim);
    return {pair_flops(shape, false), pair_flops(shape, causal_),
            recompute_ ? 2 * z * d * (n + keys) : 2 * z * n * keys};
  }

 private:
  bool recompute_, causal_;
  kernels::Dropout dropout_;
};

class FusedCore : public AttentionCore, public RowCore {
 public:
  explicit FusedCore(const BuildContext& context) : causal_(context.causal), dropout_(context.make_dropout()) {}

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    XF_ASSERT(!mask.causal || q.size(2) == k.size(2), "causal needs as many keys ({}) as queries ({})", k.size(2),
              q.size(2));
    const bool fused = kernels::attention_runs_fused(q, k, v), drops = is_training() && dropout_.p() > 0;
    if (!q.is_cpu() && !fused && !drops && kernels::policy() != kernels::Policy::kReference) {
      const kernels::variable_list wide = kernels::in_float({q, k, v});
      return by_library(wide[0], wide[1], wide[2], mask);
    }
    const bool bf16 = q.scalar_type() == at::kBFloat16 || kernels::stores_bf16({q, k, v});
    const bool fp16 = q.scalar_type() == at::kHalf;
    const std::string device = "fused-" + c10::DeviceTypeName(q.device().type(), /*lower_case=*/true);
    std::string& ran = is_training() ? in_training_ : in_evaluation_;
    ran = !fused ? "reference" : device + (bf16 ? "-bf16" : "") + (fp16 ? "-fp16" : "");
    return kernels::attention(q, k, v, own_options(q, mask));
  }

  // Keeps queries, keys, values, output and one log-sum per row. What runs when causal is the CPU's count of tiles.
  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    const double n = static_cast<double>(shape.query_len), keys = static_cast<double>(shape.key_len);
    const double pairs = static_cast<double>(kernels::attention_pairs(shape.query_len, shape.key_len, causal_));
    return {4 * z * d * pairs, pair_flops(shape, causal_), z * (2 * d * (n + keys) + n)};
  }

  [[nodiscard]] bool zeroes_padding() const override { return true; }
  [[nodiscard]] bool takes_bf16() const override { return true; }
  [[nodiscard]] bool takes_half_on_devices(const at::Tensor& /*q*/) const override { return true; }

  [[nodiscard]] std::string backend() const override {
    std::string text = in_training_.empty() ? "" : in_training_ + " in training";
    if (!in_evaluation_.empty()) text += (text.empty() ? "" : ", ") + in_evaluation_ + " in evaluation";
    return text;
  }

 private:
  [[nodiscard]] kernels::AttentionOptions own_options(const at::Tensor& q, const SequenceMask& mask) const {
    kernels::AttentionOptions options;
    options.scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    options.mask = mask;
    options.query_valid = mask.query_valid(q.size(2));
    options.dropout = dropout_.place(is_training());
    return options;
  }

  static std::string backend_name(at::SDPBackend backend) {
    switch (backend) {
      case at::SDPBackend::math:
        return "sdpa-math";
      case at::SDPBackend::flash_attention:
        return "sdpa-flash";
      case at::SDPBackend::efficient_attention:
        return "sdpa-efficient";
      case at::SDPBackend::cudnn_attention:
        return "sdpa-cudnn";
      default:
        return "sdpa";
    }
  }

  // LibTorch's scaled_dot_product_attention.
  at::Tensor by_library(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask) {
    if (mask.all_valid()) return attend(q, k, v, {}, mask.causal);

    at::Tensor allowed = mask.key_valid.unsqueeze(1).unsqueeze(1);  // [b,1,1,n]
    // The operator takes a mask or causality, not both: then, and only then, a boolean [b,1,n,n].
    if (mask.causal) allowed = allowed.logical_and(at::ones({q.size(2), k.size(2)}, allowed.options()).tril());
    // What the operator makes of a row without any key depends on its backend: let such a row see all keys and
    // fill it with zero, which also stops its gradient.
    const at::Tensor empty = allowed.any(-1, /*keepdim=*/true).logical_not();  // [b,1,1 or n,1]
    at::Tensor zero = empty;
    if (const at::Tensor valid = mask.query_valid(q.size(2)); valid.defined())
      zero = zero.logical_or(valid.logical_not().unsqueeze(1).unsqueeze(-1));
    return attend(q, k, v, allowed.logical_or(empty), false).masked_fill(zero, 0);
  }

  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const std::optional<at::Tensor>& allowed, bool causal) {
    (is_training() ? in_training_ : in_evaluation_) =
        backend_name(static_cast<at::SDPBackend>(at::_fused_sdp_choice(q, k, v, allowed, /*dropout_p=*/0, causal)));
    return at::scaled_dot_product_attention(q, k, v, allowed, /*dropout_p=*/0, causal);
  }

  bool causal_;
  kernels::Dropout dropout_;
  std::string in_training_, in_evaluation_;  // the backends that ran last
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::recompute, "recompute",
               "form the weights again in the backward pass instead of keeping them: less memory, more time, the same "
               "numbers")
          .added(false);
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor exact;
  exact.name = "softmax";
  exact.title = "Scaled dot-product attention";
  exact.paper =
      "Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser, Polosukhin: Attention Is All You Need, 2017";
  exact.method_class = "full";
  exact.summary =
      "Every token attends to every valid token; the [n, n] weights are formed, as in published comparisons.";
  exact.complexity = Complexity::kQuadratic;
  exact.traits = {.causal_ok = true, .cross_ok = true};
  exact.appended_padding = always_exact();
  exact.options = schema().options();
  exact.dense_limit = Json::object();
  exact.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<ExplicitCore>(schema().read(options), context);
  };

  Descriptor fused = exact;
  fused.name = "softmax-fused";
  fused.title = "Scaled dot-product attention, fused";
  fused.summary = "The same function without the weights in memory, which is linear in the length.";
  fused.options.clear();
  fused.build_core = [](const Json&, const BuildContext& context) { return std::make_shared<FusedCore>(context); };
  return {exact, fused};
}

}  // namespace xformer::attention::variants::softmax
