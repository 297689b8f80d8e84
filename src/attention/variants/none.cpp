// No attention: o_i = v_i. The sanity floor of the mlpen code (attention-core 3.19): what it reaches, and the time it
// takes, belong to the rest of the model.
#include <torch/csrc/autograd/custom_function.h>

#include "attention/descriptor.h"

namespace xformer::attention::variants::none {

struct Options {};

// v, and zeros as the gradients of q and k, so that a training step holds the whole frame around a core. They are the
// same memory, lying as rows of heads do.
class OwnValues : public torch::autograd::Function<OwnValues> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const SequenceMask& mask) {
    context->saved_data["q"] = q.sizes();
    context->saved_data["k"] = k.sizes();
    if (!mask.all_valid()) context->save_for_backward({mask.key_valid});
    return mask.zero_padding(v);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const std::vector<int64_t> q = context->saved_data["q"].toIntVector(), k = context->saved_data["k"].toIntVector();
    const auto zeros = [&](const std::vector<int64_t>& of) {
      return at::zeros({of[0], of[2], of[1], of[3]}, gradients[0].options()).transpose(1, 2);
    };
    const at::Tensor q_zeros = zeros(q);
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const SequenceMask mask{saved.empty() ? at::Tensor() : saved[0]};
    return {q_zeros, q == k ? q_zeros : zeros(k), mask.zero_padding(gradients[0]), {}};
  }
};

class NoneCore : public AttentionCore {
 public:
  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    return OwnValues::apply(q, k, v, mask.padding_read ? mask : SequenceMask());
  }

  [[nodiscard]] bool zeroes_padding() const override { return true; }
  [[nodiscard]] bool takes_bf16() const override { return true; }
  [[nodiscard]] bool takes_half_on_devices(const at::Tensor& /*q*/) const override { return true; }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    return {0, 0, static_cast<double>(shape.batch * shape.heads * shape.query_len * shape.head_dim)};
  }
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema;
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "none";
  result.title = "No attention";
  result.paper =
      "Xiong, Zeng, Chakraborty, Tan, Fung, Li, Singh: Nystromformer: A Nystrom-Based Algorithm for Approximating "
      "Self-Attention, 2021 (its Long Range Arena code)";
  result.method_class = "FP";
  result.summary = "Every token keeps its own value: the floor that any attention has to beat.";
  result.complexity = Complexity::kLinear;
  result.traits = {.causal_ok = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  result.build_core = [](const Json&, const BuildContext&) { return std::make_shared<NoneCore>(); };
  return {result};
}

}  // namespace xformer::attention::variants::none
