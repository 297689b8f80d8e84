#include "kernels/hashed_attention/hashed_attention.h"

#include <ATen/record_function.h>

#include "core/error.h"
#include "kernels/fused.h"
#include "kernels/hashed_attention/cpu.h"

namespace xformer::kernels {

namespace {

using torch::autograd::AutogradContext;

// What is no differentiable input.
struct Call {
  at::Tensor buckets;
  HashedAttentionOptions options;
};

struct HashedAttentionFunction : torch::autograd::Function<HashedAttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& v, const Call& call) {
    const auto& [buckets, options] = call;
    RECORD_FUNCTION("xformer::hashed_attention", operands(q, v));
    const HashedAttentionForward result = hashed_attention_forward_cpu(q, v, buckets, options);
    context->save_for_backward(
        {q, v, result.out, result.order, result.shift, result.sum, options.valid, options.dropout.state, buckets});
    context->saved_data["chunk"] = options.chunk;
    context->saved_data["dropout"] = options.dropout.p;
    context->saved_data["site"] = options.dropout.site;
    return result.out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    RECORD_FUNCTION("xformer::hashed_attention_backward", operands(gradients[0], saved[0], saved[1]));
    const HashedAttentionOptions options{
        context->saved_data["chunk"].toInt(),
        false,
        saved[6],
        {context->saved_data["dropout"].toDouble(), saved[7], context->saved_data["site"].toInt()}};
    const HashedAttentionGradients found = hashed_attention_backward_cpu(
        gradients[0], saved[0], saved[1], {saved[2], saved[3], saved[4], saved[5]}, options);
    check_backward("xformer::hashed_attention", {saved[0], saved[1]}, gradients, {found.q, found.v},
                   [&](const variable_list& inputs) {
                     return variable_list{hashed_attention_reference(inputs[0], inputs[1], saved[8], options)};
                   });
    return {found.q, found.v, at::Tensor()};
  }
};

}  // namespace

at::Tensor hashed_attention(const at::Tensor& q, const at::Tensor& v, const at::Tensor& buckets,
                            const HashedAttentionOptions& options) {
  XF_ASSERT(!buckets.defined() || buckets.size(3) == hashed_slots(q.size(2), options.chunk),
            "{} slots for {} tokens in chunks of {}", buckets.size(3), q.size(2), options.chunk);
  if (options.dup_correct || !runs_fused("hashed_attention", {q, v}))
    return hashed_attention_reference(q, v, buckets, options);
  const at::Tensor result = HashedAttentionFunction::apply(q, v, Call{buckets, options});
  check_forward("xformer::hashed_attention", {result},
                [&] { return variable_list{hashed_attention_reference(q, v, buckets, options)}; });
  return result;
}

at::Tensor hash_buckets(const at::Tensor& turned, const std::vector<int64_t>& factors,
                        const HashedAttentionOptions& options) {
  const at::Tensor values = turned.detach();
  if (!runs_fused_heard("hash_buckets", {values})) return hash_buckets_reference(values, factors, options);
  const at::Tensor result = hash_buckets_cpu(values, factors, options);
  check_forward("xformer::hash_buckets", {result},
                [&] { return variable_list{hash_buckets_reference(values, factors, options)}; });
  return result;
}

}  // namespace xformer::kernels
