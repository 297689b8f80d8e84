#include "kernels/entmax_attention/entmax_attention.h"

#include "core/error.h"
#include "kernels/entmax_attention/cpu.h"
#include "kernels/entmax_attention/device.h"
#include "kernels/fused.h"

namespace xformer::kernels {

namespace {

struct EntmaxAttentionCall {
  at::Tensor q, k, v, alpha;
  EntmaxAttentionOptions options;
  EntmaxAttentionForward made;

  static constexpr const char* kName = "entmax_attention";
  static inline const Operator<entmax_attention_forward_cpu> kForward{"entmax_attention_forward"};
  static inline const Operator<entmax_attention_backward_cpu> kBackward{"entmax_attention_backward"};
  static constexpr bool kReports = true, kTakesBf16 = true;
  static bool is_parameter(size_t input) { return input == 3; }

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

// Of alpha 1, which is softmax, there are none.
bool fits_kernels(const at::Tensor& q, const at::Tensor& v, const EntmaxAttentionOptions& options) {
  return q.is_cpu() ? options.alpha != 1 : fits_entmax_programs(q, v, options);
}

}  // namespace

at::Tensor entmax_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& alpha,
                            const EntmaxAttentionOptions& options) {
  XF_ASSERT(alpha.defined() == (options.alpha == 0) && (!alpha.defined() || alpha.sizes() == q.sizes().slice(1, 1)),
            "attention by entmax takes one alpha for each head, or one that options.alpha says");
  return run_fused(EntmaxAttentionCall{q, k, v, alpha, options, {}}, fits_kernels(q, v, options))[0];
}

}  // namespace xformer::kernels
