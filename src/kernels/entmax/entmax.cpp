#include "kernels/entmax/entmax.h"

#include "core/error.h"
#include "kernels/entmax/cpu.h"
#include "kernels/fused.h"

namespace xformer::kernels {

namespace {

struct EntmaxCall {
  at::Tensor scores, alpha;
  EntmaxOptions options;
  at::Tensor p;

  static constexpr const char* kName = "entmax";
  static inline const Operator<entmax_forward_cpu> kForward{"entmax_forward"};
  static inline const Operator<entmax_backward_cpu> kBackward{"entmax_backward"};

  [[nodiscard]] variable_list inputs() const { return {scores, alpha}; }
  variable_list forward() {
    p = kForward(scores, alpha, options);
    if (policy() != Policy::kCheck) scores = at::Tensor();  // the gradients need p alone
    return {p};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    const EntmaxGradients found = kBackward(gradients[0], p, alpha, options);
    return {found.scores, options.alpha == 0 ? found.alpha : at::Tensor()};
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {entmax_reference(in[0], in[1], options)};
  }
};

}  // namespace

at::Tensor entmax(const at::Tensor& scores, const at::Tensor& alpha, const EntmaxOptions& options) {
  XF_ASSERT(scores.dim() == 4 && alpha.dim() == 1 && alpha.size(0) == (options.alpha == 0 ? scores.size(1) : 1),
            "entmax takes scores [b,h,q,k] and one alpha for each head, or one that options.alpha says");
  return run_fused(EntmaxCall{scores, alpha, options, {}})[0];
}

}  // namespace xformer::kernels
