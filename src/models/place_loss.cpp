#include "models/place_loss.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "tensor/autocast.h"

namespace xformer::models {

namespace {

using torch::autograd::variable_list;

// Places first, first + 1, ... of a call, and what stands there.
struct Block {
  at::Tensor x, labels, asked, own;  // [r,m], [r], [r] bool, [r,1]: the label or, where none is, class 0

  Block(const at::Tensor& all, const at::Tensor& all_labels, int64_t first, int64_t rows)
      : x(all.narrow(0, first, rows)),
        labels(all_labels.narrow(0, first, rows)),
        asked(labels.ge(0)),
        own(labels.clamp_min(0).unsqueeze(1)) {}
};

// On a CPU by tiles of our operators; those of other devices round factors, which losses are not to see.
at::Tensor scores_of(const at::Tensor& x, const kernels::LinearMap& map) {
  return x.is_cpu() ? kernels::linear(x, map) : at::linear(x, map.weight, map.bias);
}

template <class Work>
void for_each_block(const at::Tensor& x, const at::Tensor& labels, int64_t block, const Work& work) {
  for (int64_t first = 0; first < x.size(0); first += block) {
    const int64_t rows = std::min(block, x.size(0) - first);
    work(Block(x, labels, first, rows), first, rows);
  }
}

struct PlaceLoss : torch::autograd::Function<PlaceLoss> {
  // x [t,m] -> [t,2].
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& given_bias, const at::Tensor& labels, int64_t block) {
    const at::Tensor bias = given_bias.value_or(at::Tensor());
    const AutocastScope full(x.device().type(), std::nullopt);
    const at::Tensor result = at::empty({x.size(0), 2}, weight.options());
    const at::Tensor sums = at::empty({x.size(0)}, weight.options());
    for_each_block(x, labels, block, [&](const Block& one, int64_t first, int64_t rows) {
      const at::Tensor scores = scores_of(one.x, {weight, bias}), sum = scores.logsumexp(-1);
      const at::Tensor loss = sum - scores.gather(1, one.own).squeeze(1);
      const at::Tensor into = result.narrow(0, first, rows);
      into.select(1, 0).copy_(at::where(one.asked, loss, at::zeros({}, loss.options())));
      into.select(1, 1).copy_(scores.argmax(-1).eq(one.labels));
      sums.narrow(0, first, rows).copy_(sum);
    });
    context->save_for_backward({x, weight, bias, labels, sums});
    context->saved_data["block"] = block;
    return result;
  }

  static variable_list backward(torch::autograd::AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &labels = saved[3], &sums = saved[4];
    const AutocastScope full(x.device().type(), std::nullopt);
    const at::Tensor of_x = at::empty_like(x), of_weight = at::zeros_like(weight);
    const at::Tensor of_bias = bias.defined() ? at::zeros_like(bias) : at::Tensor();
    const at::Tensor of_loss = gradients[0].select(1, 0);
    for_each_block(x, labels, context->saved_data["block"].toInt(), [&](const Block& one, int64_t first, int64_t rows) {
      // Of the scores: softmax less one at the label, times the loss's.
      at::Tensor change = scores_of(one.x, {weight, bias}).sub_(sums.narrow(0, first, rows).unsqueeze(1)).exp_();
      change.scatter_(1, one.own, change.gather(1, one.own) - 1);
      const at::Tensor factor = of_loss.narrow(0, first, rows);
      change.mul_(at::where(one.asked, factor, at::zeros({}, factor.options())).unsqueeze(1));
      const kernels::MapGradients found = kernels::linear_gradients(change, one.x, {weight, bias});
      of_x.narrow(0, first, rows).copy_(found.x);
      of_weight.add_(found.weight);
      if (bias.defined()) of_bias.add_(found.bias);
    });
    return {of_x, of_weight, of_bias, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor place_losses(const at::Tensor& x, const kernels::LinearMap& map, const at::Tensor& labels, int64_t block) {
  XF_ASSERT(block >= 1 && labels.sizes() == x.sizes().slice(0, 2), "losses of {} places by labels of {}, {} at once",
            x.numel() / x.size(-1), labels.numel(), block);
  const at::Tensor rows = x.flatten(0, 1).to(map.weight.scalar_type());
  const auto bias = map.bias.defined() ? std::optional(map.bias) : std::nullopt;
  return PlaceLoss::apply(rows, map.weight, bias, labels.flatten(), block).view({x.size(0), x.size(1), 1, 2});
}

}  // namespace xformer::models
