#include "kernels/routed_features/routed_features.h"

#include <ATen/Functions.h>

#include "core/error.h"
#include "kernels/batched_product/batched_product.h"
#include "kernels/feature_attention/features.h"
#include "kernels/fused.h"
#include "kernels/routed_features/cpu.h"
#include "tensor/probe.h"

namespace xformer::kernels {

namespace {

struct RoutedFeaturesCall {
  at::Tensor q, maps, tables, gate, chosen;
  RoutedFeaturesOptions options;

  static constexpr const char* kName = "routed_features";
  static inline const Operator<routed_features_forward_cpu> kForward{"routed_features_forward"};
  static inline const Operator<routed_features_backward_cpu> kBackward{"routed_features_backward"};
  static constexpr bool kReports = true;

  [[nodiscard]] variable_list inputs() const { return {q, maps, tables, gate}; }
  variable_list forward() { return {kForward(q, maps, tables, chosen, gate, options)}; }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return tensors_of(kBackward(gradients[0], q, maps, tables, chosen, gate, options));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {routed_features_reference(in[0], in[1], in[2], chosen, in[3], options)};
  }
};

}  // namespace

at::Tensor routed_features_reference(const at::Tensor& q, const at::Tensor& maps, const at::Tensor& tables,
                                     const at::Tensor& chosen, const at::Tensor& gate,
                                     const RoutedFeaturesOptions& options) {
  const int64_t b = q.size(0), n = q.size(1), d = q.size(2), sub_heads = tables.size(1), resolutions = chosen.size(2);
  const int64_t w = d / sub_heads;
  at::Tensor queries = q.view({b, n, sub_heads, 1, w});  // [b,n,S,H or 1,w]
  if (maps.defined()) {
    const at::Tensor by_sub_head = maps.unflatten(1, {sub_heads, w}).transpose(0, 1).reshape({d * resolutions, d});
    queries = at::linear(q, by_sub_head).view({b, n, sub_heads, resolutions, w});
  }
  const at::Tensor phi = plain_features(queries, {.map = options.map});
  const at::Tensor features =
      (phi * chosen.view({-1, n, 1, resolutions, 1})).flatten(3).transpose(1, 2);  // [b,S,n,H w]
  const at::Tensor sums = batched_product(features, tables);                       // [b,S,n,w+1]
  const at::Tensor denominator = sums.narrow(-1, w, 1) + options.epsilon;
  probe("denominator", denominator);
  const at::Tensor out = (sums.narrow(-1, 0, w) / denominator).transpose(1, 2).reshape({b, n, d});
  return gate.defined() ? out * gate.unsqueeze(-1) : out;
}

at::Tensor routed_features(const at::Tensor& q, const at::Tensor& maps, const at::Tensor& tables,
                           const at::Tensor& chosen, const at::Tensor& gate, const RoutedFeaturesOptions& options) {
  XF_ASSERT(q.dim() == 3 && tables.dim() == 4 && chosen.dim() == 3 && tables.size(0) == q.size(0) &&
                tables.size(1) * (tables.size(3) - 1) == q.size(2) &&
                tables.size(2) == chosen.size(2) * (tables.size(3) - 1) && chosen.size(1) == q.size(1) &&
                (!maps.defined() || (maps.size(0) == chosen.size(2) && maps.size(1) == q.size(2))),
            "routed features take q [b,n,d], maps [H,d,d], tables [b,S,H w,w+1] of w = d / S and chosen [b,n,H]");
  XF_ASSERT(options.map != FeatureMap::kSoftmax, "routed features are of elu or relu");
  return run_fused(RoutedFeaturesCall{q, maps, tables, gate, chosen, options})[0];
}

}  // namespace xformer::kernels
