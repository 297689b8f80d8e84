// Vision Transformer as DeiT trains it (Dosovitskiy et al. 2021; Touvron et al. 2021; timm's vision_transformer):
// patches of an image side by side as numbers, a learned CLS vector in front, learned positions, pre-norm blocks of any
// attention, the CLS place read at the end by one linear map. Under mrs- the CLS place is its own group at every scale.
#include "models/encoder_options.h"

namespace xformer::models::families::vit {

// Width 192 with four heads is MrsFormer's; DeiT-tiny has three, of 64.
struct Options : EncoderOptions {
  Options() {
    dim = 192, heads = 4, head_dim = 48, layers = 12, ff_dim = 768;
    dropout = attention_dropout = 0;
    stochastic_depth = 0.1;
    pooling = "cls_vector", init = "vit", length_rule = "exact";
    classifier_dim = 0;
    norm_epsilon = 1e-6;
    mask_output = false;
  }
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add<int64_t>(&Options::dim, "dim", "width of a token", at_least(1))
          .include(encoder_schema(), {"heads", "head_dim", "layers", "ff_dim", "dropout", "attention_dropout"})
          .add<double>(
              &Options::stochastic_depth, "stochastic_depth",
              "share of the training examples for which the last block's branches are left out, rising evenly from 0 "
              "in the first block",
              fraction_below_one());
  return kSchema;
}

class Vit : public Transformer {
 public:
  using Transformer::Transformer;

  // DeiT's: neither vectors (biases, norms) nor positions and CLS.
  [[nodiscard]] bool decays(const std::string& name) const override {
    const at::Tensor* const parameter = named_parameters().find(name);
    return name != "positions" && name != "cls" && (parameter == nullptr || parameter->dim() > 1);
  }
};

std::vector<FamilyDescriptor> describe() {
  FamilyDescriptor vit;
  vit.name = "vit";
  vit.aliases = {"deit"};
  vit.title = "Vision Transformer";
  vit.summary =
      "Images: patches as tokens, a CLS vector in front, pre-norm blocks, stochastic depth; mrs-deit by name.";
  vit.options = schema().options();
  vit.padded_len = [](const Json&, int64_t max_tokens) { return max_tokens; };
  vit.check = [](const ModelRequest& request) {
    XF_CHECK(request.input.vocabulary == 0 && request.input.width > 1 && request.input.categories.empty(), UserError,
             "the vit family takes patches of images; the task has {}",
             request.input.vocabulary > 0 ? "sequences of ids" : "rows of numbers");
    check_encoder(schema().read(request.model_options), request);
  };
  vit.build = [](const ModelRequest& request) {
    return std::make_shared<Vit>(encoder_parts(schema().read(request.model_options), request), request);
  };
  return {vit};
}

}  // namespace xformer::models::families::vit
