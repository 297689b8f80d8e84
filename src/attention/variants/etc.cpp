// Global-local attention: Ainslie et al., "ETC: Encoding Long and Structured Inputs in Transformers", 2020,
// section 3.2: a sequence of g global tokens before the n long ones, in one softmax per row,
//   A(i) = everything                       for global rows
//   A(i) = globals and {j : |i - j| <= w}   for long rows
// over valid keys. The global tokens are learned and the model's: it puts them in front (prefix_tokens), and they pass
// through all layers as tokens do; what it pins behind them (CLS) is global too. The relative positions of the paper
// are left out, as positions are absolute here.
#include "attention/descriptor.h"
#include "attention/shared/global_window.h"
#include "attention/shared/windows.h"

namespace xformer::attention::variants::etc {

struct Options {
  int64_t global_tokens = 64;
  std::vector<int64_t> window = {32};
};

class EtcCore : public AttentionCore {
 public:
  EtcCore(const Options& options, const BuildContext& context)
      : attention_(std::max(options.global_tokens, context.pinned_tokens), layer_window(options.window, context.layer),
                   std::vector<int64_t>(static_cast<size_t>(context.heads), 1), context) {}

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    return attention_.forward({q, k, v}, {q, k, v}, mask, is_training());
  }

  [[nodiscard]] Cost cost(const Shape& shape) const override { return attention_.cost(shape); }
  [[nodiscard]] bool zeroes_padding() const override { return true; }
  [[nodiscard]] bool takes_bf16() const override { return true; }
  [[nodiscard]] bool takes_half_on_devices(const at::Tensor& q) const override {
    return kernels::window_attention_runs_fused(q);
  }

 private:
  GlobalWindow attention_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::global_tokens, "global_tokens", kGlobalTokensHelp, at_least(0))
          .add(&Options::window, "window", kWindowHelp, each_at_least(0));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "etc";
  result.title = "ETC (global-local attention)";
  result.paper =
      "Ainslie, Ontanon, Alberti, Cvicek, Fisher, Pham, Ravula, Sanghai, Wang, Yang: ETC: Encoding Long and Structured "
      "Inputs in Transformers, 2020";
  result.method_class = "FP+M";
  result.summary = "Learned global tokens stand in front: they see all and are seen by all; the others see a window.";
  result.complexity = Complexity::kLinear;
  result.appended_padding = always_exact();
  result.options = schema().options();
  result.dense_limit = Json{{"window", {1 << 30}}};
  result.prefix_tokens = [](const Json& options) { return schema().read(options).global_tokens; };
  result.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<EtcCore>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::etc
