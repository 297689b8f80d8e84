// The Transformer encoder for one sequence.
#include "models/encoder_options.h"

namespace xformer::models::families::encoder {

std::vector<FamilyDescriptor> describe() {
  FamilyDescriptor encoder;
  encoder.name = "encoder";
  encoder.title = "Transformer encoder";
  encoder.summary = "Embedding, blocks of attention and feed-forward, pooling, classifier or regressor.";
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
    return std::make_shared<Transformer>(encoder_parts(encoder_schema().read(request.model_options), request), request);
  };
  return {encoder};
}

}  // namespace xformer::models::families::encoder
