// The Transformer encoder for one sequence. Where the task's own inputs are what is asked (data.objective), the same
// body scores every place by a linear map of its own name, which no classifier is mistaken for.
#include "models/encoder_options.h"

namespace xformer::models::families::encoder {

namespace {

constexpr int64_t kLossBlock = 4096;  // places whose scores are in memory at once

Parts parts_of(const ModelRequest& request) {
  const EncoderOptions options = encoder_schema().read(request.model_options);
  Parts parts = encoder_parts(options, request);
  if (!request.per_position) return parts;
  parts.readout.last_dropped = options.pooling == "cls_token";
  parts.readout.pooling = "none";
  parts.readout.hidden = {};
  parts.readout.last = "symbols_out";
  parts.readout.loss_block = kLossBlock;
  return parts;
}

}  // namespace

std::vector<FamilyDescriptor> describe() {
  FamilyDescriptor encoder;
  encoder.name = "encoder";
  encoder.title = "Transformer encoder";
  encoder.summary = "Embedding, blocks of attention and feed-forward, pooling, classifier or regressor.";
  encoder.options = encoder_schema().options();
  encoder.pretrains = true;
  encoder.padded_len = [](const Json& options, int64_t max_tokens) {
    return encoder_padded_len(encoder_schema().read(options), max_tokens);
  };
  encoder.check = [](const ModelRequest& request) {
    check_encoder(encoder_schema().read(request.model_options), request);
    XF_CHECK(request.input.sequences == 1, UserError,
             "the encoder family takes one sequence, the task's examples have {}; take dual-encoder/{}",
             request.input.sequences, request.attention.name);
  };
  encoder.build = [](const ModelRequest& request) { return std::make_shared<Transformer>(parts_of(request), request); };
  return {encoder};
}

}  // namespace xformer::models::families::encoder
