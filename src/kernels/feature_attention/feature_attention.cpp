#include "kernels/feature_attention/feature_attention.h"

#include <ATen/OpMathType.h>

#include "core/error.h"
#include "kernels/feature_attention/cpu.h"
#include "kernels/fused.h"

namespace xformer::kernels {

namespace {

struct FeatureAttentionCall {
  at::Tensor q, k, v;
  FeatureAttentionOptions options;
  FeatureAttentionForward made;

  static constexpr const char* kName = "feature_attention";
  static inline const Operator<feature_attention_forward_cpu> kForward{"feature_attention_forward"};
  static inline const Operator<feature_attention_backward_cpu> kBackward{"feature_attention_backward"};
  static constexpr bool kReports = true, kTakesBf16 = true;

  [[nodiscard]] variable_list inputs() const { return {q, k, v}; }
  variable_list forward() {
    made = kForward(q, k, v, options);
    return {made.out};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return tensors_of(kBackward(gradients[0], q, k, v, made, options));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {feature_attention_reference(in[0], in[1], in[2], options)};
  }
};

}  // namespace

at::Tensor feature_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const FeatureAttentionOptions& options) {
  XF_ASSERT(q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && k.size(2) == v.size(2) && q.size(3) == k.size(3),
            "feature attention takes [b,h,n,d], [b,h,m,d] and [b,h,m,e]");
  XF_ASSERT(options.omega.defined() || options.map != FeatureMap::kSoftmax, "softmax's features need a projection");
  const bool possible = !options.omega.defined() || options.omega.scalar_type() == at::toOpMathType(q.scalar_type());
  return run_fused(FeatureAttentionCall{q, k, v, options, {}}, possible)[0];
}

}  // namespace xformer::kernels
