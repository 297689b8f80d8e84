#include "kernels/window_attention/window_attention.h"

#include "core/error.h"
#include "kernels/fused.h"
#include "kernels/window_attention/cpu.h"

namespace xformer::kernels {

namespace {

struct WindowAttentionCall {
  at::Tensor q, k, v;
  ExtraKeys extra;
  WindowAttentionOptions options;
  bool with_sums;  // of the reference; kernels make them anyway
  WindowAttentionForward made;

  static constexpr const char* kName = "window_attention";
  static inline const Operator<window_attention_forward_cpu> kForward{"window_attention_forward"};
  static inline const Operator<window_attention_backward_cpu> kBackward{"window_attention_backward"};
  static constexpr bool kReports = true, kPartialGradients = true;

  [[nodiscard]] variable_list inputs() const { return {q, k, v, extra.k, extra.v}; }
  variable_list forward() {
    made = kForward(q, k, v, extra, options);
    return {made.out, made.log_sum};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return tensors_of(kBackward(gradients[0], gradients[1], q, k, v, extra, made, options));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    at::Tensor sums;
    const at::Tensor out = window_attention_reference(in[0], in[1], in[2], {in[3], in[4], extra.allowed, extra.places},
                                                      options, with_sums ? &sums : nullptr);
    return {out, sums};
  }
};

}  // namespace

at::Tensor window_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const ExtraKeys& extra,
                            const WindowAttentionOptions& options, at::Tensor* log_sum) {
  XF_ASSERT(q.size(2) == options.windows.length && k.size(2) == options.windows.length,
            "windows over {} tokens got {} and {}", options.windows.length, q.size(2), k.size(2));
  const ExtraKeys used = extra.count() > 0 ? extra : ExtraKeys();
  const variable_list result = run_fused(WindowAttentionCall{q, k, v, used, options, log_sum != nullptr, {}});
  if (log_sum != nullptr) *log_sum = result[1];
  return result[0];
}

}  // namespace xformer::kernels
