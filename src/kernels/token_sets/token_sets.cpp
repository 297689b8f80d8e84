#include "kernels/token_sets/token_sets.h"

#include <ATen/Functions.h>

#include <cmath>

#include "core/error.h"
#include "kernels/fused.h"
#include "kernels/token_sets/cpu.h"
#include "kernels/token_sets/device.h"
#include "kernels/window_attention/window_attention.h"
#include "tensor/parts.h"

namespace xformer::kernels {

namespace {

struct SetMaxCall {
  at::Tensor x, out;
  TokenSets sets;

  static constexpr const char* kName = "set_max";
  static inline const Operator<set_max_forward_cpu> kForward{"set_max_forward"};
  static inline const Operator<set_max_backward_cpu> kBackward{"set_max_backward"};
  static constexpr bool kTakesBf16 = true;

  [[nodiscard]] variable_list inputs() const { return {x}; }
  variable_list forward() { return {out = kForward(x, sets)}; }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return {kBackward(gradients[0], x, out, sets)};
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const { return {set_max_reference(in[0], sets)}; }
};

struct SetAttentionCall {
  at::Tensor q, k, v;
  SetAttentionOptions options;
  SetAttentionForward made;

  static constexpr const char* kName = "set_attention";
  static inline const Operator<set_attention_forward_cpu> kForward{"set_attention_forward"};
  static inline const Operator<set_attention_backward_cpu> kBackward{"set_attention_backward"};
  static constexpr bool kTakesBf16 = true;

  [[nodiscard]] variable_list inputs() const { return {q, k, v}; }
  variable_list forward() {
    made = kForward(q, k, v, options);
    return {made.out};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return tensors_of(kBackward(gradients[0], q, k, v, made, options));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {set_attention_reference(in[0], in[1], in[2], options)};
  }
};

// [b,1,t,size,1]
at::Tensor valid_of(const at::Tensor& x, const TokenSets& sets) {
  const at::Tensor valid =
      sets.valid.defined() ? sets.valid : at::ones({x.size(0), x.size(2)}, x.options().dtype(at::kBool));
  return in_sets(valid.unsqueeze(1).unsqueeze(-1), sets);
}

void check(const at::Tensor& x, const TokenSets& sets) {
  XF_ASSERT(x.dim() == 4 && sets.size >= 1 &&
                (!sets.valid.defined() || sets.valid.sizes() == at::IntArrayRef({x.size(0), x.size(2)})),
            "sets are of tokens [b,h,n,d] with valid [b,n]");
}

}  // namespace

at::Tensor in_sets(const at::Tensor& x, const TokenSets& sets) {
  const int64_t n = x.size(2), t = sets.count(n);
  return with_zeros_behind(x, 2, t * sets.size - n).unflatten(2, {t, sets.size});
}

at::Tensor set_max_reference(const at::Tensor& x, const TokenSets& sets) {
  const at::Tensor valid = valid_of(x, sets);
  const at::Tensor rows = at::where(valid, in_sets(x, sets), lowest_log_sum(x.scalar_type()));
  return at::where(valid.any(3), std::get<0>(at::max(rows, 3)), 0);
}

at::Tensor set_max(const at::Tensor& x, const TokenSets& sets) {
  check(x, sets);
  return run_fused(SetMaxCall{x, {}, sets}, x.is_cpu() || fits_set_max_program(x))[0];
}

at::Tensor set_attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const SetAttentionOptions& options) {
  const at::Tensor valid = valid_of(k, options.sets).transpose(-1, -2);  // [b,1,t,1,size]
  const at::Tensor rows = (q / std::sqrt(static_cast<double>(q.size(3)))).unsqueeze(3);
  at::Tensor scores = at::matmul(rows, in_sets(k, options.sets).transpose(-1, -2));
  scores = scores.masked_fill(valid.logical_not(), lowest_log_sum(scores.scalar_type()));
  const at::Tensor weights = at::softmax(scores, -1);
  const at::Tensor out = at::matmul(options.dropout(weights), in_sets(v, options.sets)).squeeze(3);
  return at::where(valid.any(-1), out, 0);
}

at::Tensor set_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const SetAttentionOptions& options) {
  check(k, options.sets);
  XF_ASSERT(
      q.dim() == 4 && q.size(2) == options.sets.count(k.size(2)) && q.size(3) == k.size(3) && v.size(2) == k.size(2),
      "attention within sets takes q [b,h,{},d], k [b,h,n,d] and v [b,h,n,e]", options.sets.count(k.size(2)));
  return run_fused(SetAttentionCall{q, k, v, options, {}})[0];
}

}  // namespace xformer::kernels
