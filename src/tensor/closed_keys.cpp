#include "tensor/closed_keys.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>

namespace xformer {

namespace {

// Where a weight is zero, softmax passes no gradient on: the selections need no passes of their own on the way back.
class ClosedSoftmax : public torch::autograd::Function<ClosedSoftmax> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& scores,
                            const at::Tensor& closed) {
    // The lowest finite number instead of -inf: a row without a key stays finite, and is made zero afterwards.
    const at::Tensor filled = scores.masked_fill(closed, lowest_score(scores.scalar_type()));
    at::Tensor weights = at::softmax(filled, -1).masked_fill_(closed, 0);
    context->save_for_backward({weights});
    return weights;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor weights = context->get_saved_variables()[0];
    // Autograd turns it into the type of the scores.
    return {at::_softmax_backward_data(gradients[0], weights, -1, weights.scalar_type()), {}};
  }
};

}  // namespace

at::Tensor closed_keys(const SequenceMask& mask, int64_t queries, int64_t keys, const at::Tensor& like) {
  at::Tensor closed;
  if (!mask.all_valid()) closed = mask.key_valid.logical_not().unsqueeze(1).unsqueeze(1);
  if (!mask.causal) return closed;
  const at::Tensor later = at::ones({queries, keys}, like.options().dtype(at::kBool)).triu(keys - queries + 1);
  return closed.defined() ? closed.logical_or(later) : later;
}

at::Tensor closed_softmax(const at::Tensor& scores, const at::Tensor& closed) {
  return ClosedSoftmax::apply(scores, closed);
}

}  // namespace xformer
