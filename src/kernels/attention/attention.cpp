#include "kernels/attention/attention.h"

#include "core/error.h"
#include "kernels/attention/cpu.h"
#include "kernels/attention/device.h"
#include "kernels/attention/weight_draws.h"
#include "kernels/fused.h"

namespace xformer::kernels {

namespace {

struct AttentionCall {
  at::Tensor q, k, v;
  AttentionOptions options;
  AttentionForward made;

  static constexpr const char* kName = "attention";
  static inline const Operator<attention_forward_cpu> kForward{"attention_forward"};
  static inline const Operator<attention_backward_cpu> kBackward{"attention_backward"};
  static constexpr bool kReports = true, kTakesBf16 = true;
  static bool takes_half(size_t /*input*/) { return true; }

  [[nodiscard]] variable_list inputs() const { return {q, k, v}; }
  variable_list forward() {
    if (q.is_cpu()) options.dropout = remembering_weights(options.dropout, head_sizes(q, k, v));
    made = kForward(q, k, v, options);
    return {made.out};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return tensors_of(kBackward(gradients[0], q, k, v, made, options));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {attention_reference(in[0], in[1], in[2], options)};
  }
};

bool fits_device(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return q.is_cpu() || fits_attention_programs(q, k, v);
}

}  // namespace

bool attention_runs_fused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return fits_device(q, k, v) && fused_type<AttentionCall>({q, k, v});
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options) {
  XF_ASSERT(!options.mask.causal || q.size(2) == k.size(2), "causal needs as many keys ({}) as queries ({})", k.size(2),
            q.size(2));
  return run_fused(AttentionCall{q, k, v, options, {}}, fits_device(q, k, v))[0];
}

}  // namespace xformer::kernels
