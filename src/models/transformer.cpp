#include "models/transformer.h"

namespace xformer::models {

Transformer::Transformer(const Parts& parts, const ModelRequest& request)
    : Model(request.seed),
      embedding_(*this, parts.embedding, request),
      stack_(*this, parts.stack, request, embedding_.max_len(), embedding_.pinned()),
      readout_(*this, parts.readout, request, embedding_.pinned(), embedding_.tokens()) {}

at::Tensor Transformer::forward(const ModelInput& input, State& state) {
  return readout_.scored(summary(input.tokens, input.values, input.key_valid, state), input.labels);
}

at::Tensor Transformer::summary(const at::Tensor& ids, const at::Tensor& values, const at::Tensor& valid,
                                State& state) {
  const Embedding::Embedded embedded = embedding_.forward(ids, values, valid);
  return readout_.pooled(stack_.forward(embedded.x, embedded.valid, state), embedded.valid);
}

attention::Cost Transformer::summary_cost(int64_t sequences, int64_t length) const {
  attention::Cost result = stack_.cost(sequences, length + embedding_.leading());
  result += embedding_.cost(sequences, length);
  return result;
}

attention::Cost Transformer::cost(int64_t batch, int64_t length) const {
  attention::Cost result = summary_cost(batch, length);
  result += readout_.cost(batch, length);
  return result;
}

}  // namespace xformer::models
