#include "models/transformer.h"

#include <ATen/Functions.h>

namespace xformer::models {

namespace {

StackOptions stack_of(const Parts& parts) {
  StackOptions stack = parts.stack;
  stack.padding_read = parts.readout.reads_padding();
  return stack;
}

}  // namespace

Transformer::Transformer(const Parts& parts, const ModelRequest& request)
    : Model(request.seed),
      embedding_(*this, parts.embedding, request),
      stack_(*this, stack_of(parts), request, embedding_.max_len(), embedding_.pinned()),
      readout_(*this, parts.readout, request, embedding_.pinned(), embedding_.tokens()) {}

at::Tensor Transformer::forward(const ModelInput& input, State& state) {
  return readout_.scored(summary(input.tokens, input.values, input.key_valid, state, input.segments), input.labels);
}

at::Tensor Transformer::summary(const at::Tensor& ids, const at::Tensor& values, const at::Tensor& valid, State& state,
                                const at::Tensor& segments) {
  const Embedding::Embedded embedded = embedding_.forward(ids, values, valid, 0, segments, stack_.reads_padding());
  return readout_.pooled(stack_.forward(embedded.x, embedded.valid, state), embedded.valid);
}

at::Tensor Transformer::decode(const at::Tensor& ids, Decoded& so_far) {
  if (so_far.places == embedding_.max_len()) {
    XF_ASSERT(!so_far.memory.empty(), "a place behind the last of {}", so_far.places);
    so_far.places = 0;
  }
  const at::Tensor valid = at::ones(ids.sizes(), ids.options().dtype(at::kBool));
  const at::Tensor x = stack_.decode(embedding_.forward(ids, {}, valid, so_far.places).x, so_far);
  so_far.places += ids.size(1);
  return readout_.scored(readout_.pooled(x.narrow(1, ids.size(1) - 1, 1), {})).select(1, 0);
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
