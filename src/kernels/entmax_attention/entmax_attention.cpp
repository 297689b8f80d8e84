#include "kernels/entmax_attention/entmax_attention.h"

#include "core/error.h"
#include "kernels/entmax_attention/device.h"
#include "kernels/fused.h"

namespace xformer::kernels {

namespace {

struct EntmaxAttentionCall {
  at::Tensor q, k, v, alpha;
  EntmaxAttentionOptions options;
  EntmaxAttentionForward made;

  static constexpr const char* kName = "entmax_attention";
  static inline const Operator<kNoCpuKernel<EntmaxForwardPass>> kForward{"entmax_attention_forward"};
  static inline const Operator<kNoCpuKernel<EntmaxBackwardPass>> kBackward{"entmax_attention_backward"};
  static constexpr bool kReports = true;

  [[nodiscard]] variable_list inputs() const { return {q, k, v, alpha}; }
  variable_list forward() {
    made = kForward(q, k, v, alpha, options);
    return {made.out};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return tensors_of(kBackward(gradients[0], q, k, v, alpha, made, options));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {entmax_attention_reference(in[0], in[1], in[2], in[3], options)};
  }
};

}  // namespace

at::Tensor entmax_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& alpha,
                            const EntmaxAttentionOptions& options) {
  XF_ASSERT(alpha.defined() == (options.alpha == 0) && (!alpha.defined() || alpha.sizes() == q.sizes().slice(1, 1)),
            "attention by entmax takes one alpha for each head, or one that options.alpha says");
  if (q.is_cpu()) return entmax_attention_reference(q, k, v, alpha, options);
  return run_fused(EntmaxAttentionCall{q, k, v, alpha, options, {}}, fits_entmax_programs(q, v, options))[0];
}

}  // namespace xformer::kernels
