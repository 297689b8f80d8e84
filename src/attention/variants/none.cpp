// No attention: o_i = v_i. The sanity floor of the mlpen code (attention-core 3.19): what it reaches, and the time it
// takes, belong to the rest of the model.
#include "attention/descriptor.h"

namespace xformer::attention::variants::none {

struct Options {};

class NoneCore : public AttentionCore {
 public:
  at::Tensor forward(const at::Tensor& /*q*/, const at::Tensor& /*k*/, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    return mask.padding_read ? mask.zero_padding(v) : v;
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
