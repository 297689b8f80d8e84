// The passes of entmax_attention.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the
// programs.
#pragma once

#include <algorithm>

#include "kernels/attention/device.h"
#include "kernels/entmax_attention/gradient_programs.h"
#include "kernels/entmax_attention/pass.h"

namespace xformer::kernels {

// Whether the programs take these: narrow heads of float, rows that an int counts, and no softmax.
[[nodiscard]] inline bool fits_entmax_programs(const at::Tensor& q, const at::Tensor& v,
                                               const EntmaxAttentionOptions& options) {
  return q.scalar_type() == at::kFloat && std::max(q.size(3), v.size(3)) <= kAttentionWidest &&
         numbered_by_ints({q, v}) && options.alpha != 1;
}

// As attention_arguments(); alpha without gaps.
[[nodiscard]] inline EntmaxArguments entmax_arguments(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                      const at::Tensor& alpha, const EntmaxAttentionOptions& options) {
  TORCH_CHECK(options.alpha != 1 && alpha.defined() == (options.alpha == 0) &&
                  (!alpha.defined() || (alpha.scalar_type() == at::kFloat && alpha.numel() == q.size(1))),
              "attention by entmax on a device takes alpha from above 1, of all heads or [h] float");
  EntmaxArguments a{attention_arguments(q, k, v, options.rows)};
  TORCH_CHECK(a.type == ElementType::kFloat, "attention by entmax on a device takes heads of float");
  a.power = entmax_power(options.alpha);
  a.alpha_less_1 = static_cast<float>(options.alpha - 1);
  a.alphas = read_floats(alpha);
  return a;
}

// Launch takes EntmaxArguments.
template <class Launch>
EntmaxAttentionForward entmax_forward_device(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
                                             const at::Tensor& alpha_in, const EntmaxAttentionOptions& given,
                                             const Launch& launch) {
  const EntmaxAttentionOptions options{with_readable_flags(given.rows), given.alpha};
  const at::Tensor q = readable_heads(q_in), k = readable_heads(k_in), v = readable_heads(v_in);
  const at::Tensor alpha = alpha_in.defined() ? alpha_in.contiguous() : alpha_in;
  EntmaxArguments a = entmax_arguments(q, k, v, alpha, options);
  EntmaxAttentionForward result{rows_of_heads(q, a.n, a.e), at::empty({a.b, a.h, a.n}, q.options())};
  a.out = written_floats(result.out), a.log_sum = written_floats(result.thresholds);
  if (a.b * a.h * a.n > 0) launch(a);
  return result;
}

// Launch takes EntmaxArguments.
template <class Launch>
EntmaxAttentionGradients entmax_backward_device(const at::Tensor& gradient_in, const at::Tensor& q_in,
                                                const at::Tensor& k_in, const at::Tensor& v_in,
                                                const at::Tensor& alpha_in, const EntmaxAttentionForward& forward,
                                                const EntmaxAttentionOptions& given, const Launch& launch) {
  const EntmaxAttentionOptions options{with_readable_flags(given.rows), given.alpha};
  const at::Tensor q = readable_heads(q_in), k = readable_heads(k_in), v = readable_heads(v_in);
  const at::Tensor gradient = readable_heads(gradient_in);
  const at::Tensor alpha = alpha_in.defined() ? alpha_in.contiguous() : alpha_in;
  EntmaxArguments a = entmax_arguments(q, k, v, alpha, options);
  EntmaxAttentionGradients result{
      rows_of_heads(q, a.n, a.d), rows_of_heads(q, a.m, a.d), rows_of_heads(q, a.m, a.e), {}};
  const at::Tensor means = at::empty_like(forward.thresholds), alpha_rows = at::empty_like(forward.thresholds);
  a.log_sum = written_floats(forward.thresholds), a.delta = written_floats(means);
  a.gradient = read_floats(gradient), a.gradient_places = head_places(gradient);
  a.dq = written_floats(result.q), a.dk = written_floats(result.k), a.dv = written_floats(result.v);
  if (alpha.defined()) a.alpha_rows = written_floats(alpha_rows);
  if (a.b * a.h > 0) launch(a);
  if (alpha.defined()) result.alpha = alpha_rows.sum(at::IntArrayRef({0, 2}));
  return result;
}

}  // namespace xformer::kernels
