// The Transformer encoder for one sequence: EncoderBody and a head of two linear maps, or of one behind all positions
// side by side.
#include "models/encoder_body.h"

namespace xformer::models::families::encoder {

class Encoder : public EncoderBody {
 public:
  Encoder(const EncoderOptions& options, const ModelRequest& request) : EncoderBody(options, request) {
    std::vector<int64_t> widths{summary_dim(), options.classifier_dim, request.outputs};
    if (options.pooling == "flatten" || options.classifier_dim == 0) widths.erase(widths.begin() + 1);
    add_classifier(widths, InitStream(request.seed));
  }

  at::Tensor forward(const ModelInput& input) override {
    return classified(summary(input.tokens, input.values, input.key_valid));
  }

  [[nodiscard]] attention::Cost cost(int64_t batch, int64_t length) const override {
    attention::Cost result = body_cost(batch, length);
    result += classifier_cost(batch);
    return result;
  }
};

std::vector<FamilyDescriptor> describe() {
  FamilyDescriptor encoder;
  encoder.name = "encoder";
  encoder.title = "Transformer encoder";
  encoder.summary =
      "Embedding of ids or numbers, blocks of attention and feed-forward, pooling, classification or regression head.";
  encoder.options = encoder_schema().options();
  encoder.padded_len = [](const Json& options, int64_t max_tokens) {
    return encoder_padded_len(encoder_schema().read(options), max_tokens);
  };
  encoder.check = [](const ModelRequest& request) {
    check_encoder(encoder_schema().read(request.model_options), request);
    XF_CHECK(request.input.sequences == 1, UserError,
             "the encoder family takes one sequence, the task's examples have {}; take dual-encoder/{}",
             request.input.sequences, request.attention.name);
  };
  encoder.build = [](const ModelRequest& request) {
    return std::make_shared<Encoder>(encoder_schema().read(request.model_options), request);
  };
  return {encoder};
}

}  // namespace xformer::models::families::encoder
