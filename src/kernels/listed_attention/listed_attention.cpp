#include "kernels/listed_attention/listed_attention.h"

#include "core/error.h"
#include "kernels/fused.h"
#include "kernels/listed_attention/cpu.h"
#include "kernels/listed_attention/device.h"

namespace xformer::kernels {

namespace {

struct ListedAttentionCall {
  at::Tensor q, k, v, bias;
  ListedAttentionOptions options;
  ListedAttentionForward made;

  static constexpr const char* kName = "listed_attention";
  static inline const Operator<listed_attention_forward_cpu> kForward{"listed_attention_forward"};
  static inline const Operator<listed_attention_backward_cpu> kBackward{"listed_attention_backward"};
  static constexpr bool kReports = true, kTakesBf16 = true;
  // The bias is added to exponents: what callers make of parameters and counts, in float, stays float.
  static bool is_parameter(size_t input) { return input == 3; }
  static bool takes_half(size_t input) { return !is_parameter(input); }

  [[nodiscard]] variable_list inputs() const { return {q, k, v, bias}; }
  variable_list forward() {
    made = kForward(q, k, v, bias, options);
    return {made.out};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return tensors_of(kBackward(gradients[0], q, k, v, bias, made, options));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {listed_attention_reference(in[0], in[1], in[2], options, in[3])};
  }
};

}  // namespace

at::Tensor listed_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const ListedAttentionOptions& options, const at::Tensor& bias) {
  XF_ASSERT(k.size(2) == v.size(2) && q.size(3) == k.size(3),
            "listed attention takes q [b,h,n,d], k [b,h,m,d] and v [b,h,m,e]");
  return run_fused(ListedAttentionCall{q, k, v, bias, options, {}},
                   q.is_cpu() || (!options.drops_by_key && fits_listed_programs(q, k, v, bias, options.places)))[0];
}

}  // namespace xformer::kernels
