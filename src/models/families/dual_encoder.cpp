// Two documents, one encoder (lra-recipe 5.2, 5.4): both are summarised by the same weights, and a head compares the
// summaries a and b.
//
//   nli     [a, b, a*b, a-b] -> Linear, ReLU, Linear                      (mlpen/Nystromformer SCHeadDual)
//   concat  [a, b] -> Linear, ReLU, Linear of half the width, ReLU, Linear
//                                            (google-research/long-range-arena TransformerDualEncoder, without NLI)
#include <ATen/Functions.h>

#include "models/encoder_options.h"

namespace xformer::models::families::dual_encoder {

struct Options : EncoderOptions {
  std::string interaction = "nli";
  int64_t head_layers = 2;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .include(encoder_schema())
          .add(&Options::interaction, "interaction",
               "what the head sees of the summaries a and b: nli: [a, b, a*b, a-b]; concat: [a, b]",
               one_of({"nli", "concat"}))
          .add(&Options::head_layers, "head_layers",
               "linear maps of the head: 2, or 3 with one of half classifier_dim in between", between(2, 3));
  return kSchema;
}

Parts parts_of(const Options& options, const ModelRequest& request) {
  Parts parts = encoder_parts(options, request);
  parts.readout.summaries = options.interaction == "nli" ? 4 : 2;
  parts.readout.hidden = {options.classifier_dim};
  if (options.head_layers == 3) parts.readout.hidden.push_back(std::max<int64_t>(1, options.classifier_dim / 2));
  return parts;
}

class DualEncoder : public Transformer {
 public:
  DualEncoder(const Options& options, const ModelRequest& request)
      : Transformer(parts_of(options, request), request), nli_(options.interaction == "nli") {}

  at::Tensor forward(const ModelInput& input, State& state) override {
    // Both documents of a pair are neighbours in one batch of sequences.
    const at::Tensor both = summary(input.tokens.flatten(0, 1), {}, input.key_valid.flatten(0, 1), state);
    const at::Tensor pairs = both.view({input.tokens.size(0), 2, -1}), a = pairs.select(1, 0), b = pairs.select(1, 1);
    return readout_.scored(nli_ ? at::cat({a, b, a * b, a - b}, 1) : at::cat({a, b}, 1));
  }

  // Pairs of documents are no segments of a stream.
  [[nodiscard]] State init_state(int64_t) const override { return {}; }

  [[nodiscard]] attention::Cost cost(int64_t batch, int64_t length) const override {
    attention::Cost result = summary_cost(2 * batch, length);
    result += readout_.cost(batch, length);
    return result;
  }

 private:
  bool nli_;
};

std::vector<FamilyDescriptor> describe() {
  FamilyDescriptor dual;
  dual.name = "dual-encoder";
  dual.title = "dual encoder";
  dual.summary = "One Transformer encoder for both documents of a pair; a head compares their summaries.";
  dual.options = schema().options();
  dual.padded_len = [](const Json& options, int64_t max_tokens) {
    return encoder_padded_len(schema().read(options), max_tokens);
  };
  dual.check = [](const ModelRequest& request) {
    check_encoder(schema().read(request.model_options), request);
    XF_CHECK(request.model_options.at("classifier_dim") != 0, UserError,
             "model.classifier_dim: the head of a dual-encoder has a hidden layer, expected at least 1, got 0");
    XF_CHECK(request.input.sequences == 2, UserError,
             "the dual-encoder family takes pairs of sequences, the task's examples have {}; take encoder/{}",
             request.input.sequences, request.attention.name);
  };
  dual.build = [](const ModelRequest& request) {
    return std::make_shared<DualEncoder>(schema().read(request.model_options), request);
  };
  return {dual};
}

}  // namespace xformer::models::families::dual_encoder
