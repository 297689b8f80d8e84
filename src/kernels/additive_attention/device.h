// The passes of additive_attention.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the
// programs. The signatures are the CPU's (cpu.h), but for a constant in the logs of sums (program.h).
#pragma once

#include <algorithm>

#include "kernels/additive_attention/cpu.h"
#include "kernels/additive_attention/program.h"
#include "kernels/device/head_tensors.h"

namespace xformer::kernels {

// Whether the programs take these: narrow heads of float, rows that an int counts.
[[nodiscard]] inline bool fits_additive_programs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return q.scalar_type() == at::kFloat && std::max(q.size(3), v.size(3)) <= kAdditiveWidest && q.numel() > 0 &&
         k.numel() > 0 && v.numel() > 0 && numbered_by_ints({q, k, v});
}

// Operands as programs read them, which must outlive the launches, and what these are told.
struct AdditiveOperands {
  at::Tensor q, k, v, w, key_valid, query_valid;
  AdditiveArguments a;

  AdditiveOperands(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in, const at::Tensor& w_in,
                   const AdditiveAttentionOptions& options)
      : q(readable_heads(q_in)),
        k(readable_heads(k_in)),
        v(readable_heads(v_in)),
        w(w_in.contiguous()),
        key_valid(readable_flags(options.mask.key_valid)),
        query_valid(readable_flags(options.query_valid)) {
    TORCH_CHECK(fits_additive_programs(q, k, v) && w.scalar_type() == at::kFloat,
                "additive attention on a device takes heads of float, at most ", kAdditiveWidest, " wide");
    a.q = read_floats(q), a.k = read_floats(k), a.v = read_floats(v), a.w = read_floats(w);
    a.q_places = head_places(q), a.k_places = head_places(k), a.v_places = head_places(v);
    a.b = q.size(0), a.h = q.size(1), a.n = q.size(2), a.m = k.size(2);
    a.d = static_cast<int>(q.size(3)), a.e = static_cast<int>(v.size(3));
    a.causal = options.mask.causal;
    a.key_valid = valid_flags(key_valid, a.b, a.m), a.query_valid = valid_flags(query_valid, a.b, a.n);
    if (dropout_threshold(options.dropout.p) > 0)
      a.drop = device_drop(options.dropout, q), a.drop.row_elements = a.h * a.n * a.m;
  }
};

// Launch takes AdditiveArguments.
template <class Launch>
AdditiveAttentionForward additive_forward_device(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                 const at::Tensor& w, const AdditiveAttentionOptions& options,
                                                 const Launch& launch) {
  AdditiveOperands operands(q, k, v, w, options);
  AdditiveArguments& a = operands.a;
  AdditiveAttentionForward result{rows_of_heads(q, a.n, a.e), at::empty({a.b, a.h, a.n}, q.options())};
  a.out = written_floats(result.out), a.log_sum = written_floats(result.log_sum);
  launch(a);
  return result;
}

// The same; `forward` is what the forward pass made.
template <class Launch>
AdditiveAttentionGradients additive_backward_device(const at::Tensor& gradient_in, const at::Tensor& q,
                                                    const at::Tensor& k, const at::Tensor& v, const at::Tensor& w,
                                                    const AdditiveAttentionForward& forward,
                                                    const AdditiveAttentionOptions& options, const Launch& launch) {
  AdditiveOperands operands(q, k, v, w, options);
  const at::Tensor gradient = readable_heads(gradient_in);
  AdditiveArguments& a = operands.a;
  AdditiveAttentionGradients result{
      rows_of_heads(q, a.n, a.d), rows_of_heads(q, a.m, a.d), rows_of_heads(q, a.m, a.e), {}};
  const at::Tensor delta = at::empty_like(forward.log_sum);
  const at::Tensor parts = at::empty({a.b, a.h, tiles_of(a.n), a.d}, q.options());
  TORCH_CHECK(forward.out.transpose(1, 2).is_contiguous(), "additive attention's result lies as it was made");
  a.out = written_floats(forward.out), a.log_sum = written_floats(forward.log_sum);
  a.gradient = read_floats(gradient), a.gradient_places = head_places(gradient);
  a.delta = written_floats(delta), a.dw = written_floats(parts);
  a.dq = written_floats(result.q), a.dk = written_floats(result.k), a.dv = written_floats(result.v);
  launch(a);
  result.w = parts.sum(at::IntArrayRef({0, 2}));
  return result;
}

}  // namespace xformer::kernels
