#include "kernels/token_sets/token_sets.h"

#include <ATen/Functions.h>

#include <cmath>

#include "core/error.h"
#include "kernels/fused.h"
#include "kernels/token_sets/cpu.h"
#include "kernels/token_sets/device.h"
#include "kernels/window_attention/window_attention.h"
#include "tensor/parts.h"
#include "tensor/probe.h"

namespace xformer::kernels {

namespace {

using Tensors = std::vector<at::Tensor>;

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

struct NestedSetsCall {
  Tensors q;
  at::Tensor k, v;
  NestedSetsOptions options;
  NestedSetsForward made;

  static constexpr const char* kName = "set_attention";
  static inline const Operator<nested_sets_forward_cpu> kForward{"set_attention_forward"};
  static inline const Operator<nested_sets_backward_cpu> kBackward{"set_attention_backward"};
  static constexpr bool kTakesBf16 = true, kReports = true;

  [[nodiscard]] variable_list inputs() const {
    variable_list result = q;
    result.push_back(k), result.push_back(v);
    return result;
  }
  variable_list forward() {
    made = kForward(q, k, v, options);
    return made.outs;
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return tensors_of(kBackward(gradients, q, k, v, made, options));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    const auto queries = static_cast<std::ptrdiff_t>(q.size());
    return nested_set_attention_reference({in.begin(), in.begin() + queries}, in[q.size()], in[q.size() + 1], options);
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
  probe("weights", weights);
  const at::Tensor out = at::matmul(options.dropout(weights), in_sets(v, options.sets)).squeeze(3);
  return at::where(valid.any(-1), out, 0);
}

std::vector<at::Tensor> nested_set_attention_reference(const Tensors& q, const at::Tensor& k, const at::Tensor& v,
                                                       const NestedSetsOptions& options) {
  if (q.size() == 1)
    return {set_attention_reference(q[0], k, v, {{options.sizes[0], options.valid}, options.place(0)})};
  Tensors result;
  for (size_t i = 0; i < q.size(); ++i) {
    const ProbeScope scope("sets", options.sizes[i]);
    result.push_back(set_attention_reference(q[i], k, v, {{options.sizes[i], options.valid}, options.place(i)}));
  }
  return result;
}

std::vector<at::Tensor> nested_set_attention(const Tensors& q, const at::Tensor& k, const at::Tensor& v,
                                             const NestedSetsOptions& options) {
  XF_ASSERT(!q.empty() && q.size() == options.sizes.size() && q.size() == options.sites.size(),
            "nested sets take queries, a size and a site of each level");
  for (size_t i = 0; i < q.size(); ++i) {
    const TokenSets sets{options.sizes[i], options.valid};
    check(k, sets);
    XF_ASSERT(i == 0 || sets.size % options.sizes[i - 1] == 0, "sets of {} do not hold whole ones of {}", sets.size,
              options.sizes[i - 1]);
    XF_ASSERT(
        q[i].dim() == 4 && q[i].size(2) == sets.count(k.size(2)) && q[i].size(3) == k.size(3) && v.size(2) == k.size(2),
        "attention within sets takes q [b,h,{},d], k [b,h,n,d] and v [b,h,n,e]", sets.count(k.size(2)));
  }
  return run_fused(NestedSetsCall{q, k, v, options, {}});
}

at::Tensor set_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const SetAttentionOptions& options) {
  return nested_set_attention({q}, k, v,
                              {{options.sets.size}, options.sets.valid, options.dropout, {options.dropout.site}})[0];
}

}  // namespace xformer::kernels
