#include "kernels/additive_attention/additive_attention.h"

#include "core/error.h"
#include "kernels/additive_attention/cpu.h"
#include "kernels/additive_attention/device.h"
#include "kernels/fused.h"

namespace xformer::kernels {

namespace {

struct AdditiveAttentionCall {
  at::Tensor q, k, v, w;
  AdditiveAttentionOptions options;
  AdditiveAttentionForward made;

  static constexpr const char* kName = "additive_attention";
  static inline const Operator<additive_attention_forward_cpu> kForward{"additive_attention_forward"};
  static inline const Operator<additive_attention_backward_cpu> kBackward{"additive_attention_backward"};
  static constexpr bool kReports = true, kTakesBf16 = true;
  static bool is_parameter(size_t input) { return input == 3; }

  [[nodiscard]] variable_list inputs() const { return {q, k, v, w}; }
  variable_list forward() {
    made = kForward(q, k, v, w, options);
    return {made.out};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return tensors_of(kBackward(gradients[0], q, k, v, w, made, options));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {additive_attention_reference(in[0], in[1], in[2], in[3], options)};
  }
};

}  // namespace

at::Tensor additive_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& w,
                              const AdditiveAttentionOptions& options) {
  XF_ASSERT(k.size(2) == v.size(2) && q.size(3) == k.size(3) && w.size(1) == q.size(3) && w.size(0) == q.size(1) &&
                (!options.mask.causal || q.size(2) == k.size(2)),
            "additive attention takes q [b,h,n,d], k [b,h,m,d], v [b,h,m,e] and w [h,d], causal n = m");
  return run_fused(AdditiveAttentionCall{q, k, v, w, options, {}}, q.is_cpu() || fits_additive_programs(q, k, v))[0];
}

}  // namespace xformer::kernels
