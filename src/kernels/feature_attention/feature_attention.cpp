#include "kernels/feature_attention/feature_attention.h"

#include <ATen/OpMathType.h>

#include "core/error.h"
#include "kernels/feature_attention/cpu.h"
#include "kernels/feature_attention/device.h"
#include "kernels/fused.h"
#include "tensor/op_counter.h"

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
  static bool takes_half(size_t /*input*/) { return true; }

  [[nodiscard]] variable_list inputs() const { return {q, k, v}; }
  variable_list forward() {
    const int64_t scores = options.map == FeatureMap::kSoftmax ? 2 : 1, causal = options.mask.causal ? 1 : 0;
    count_products({scores, 1, 1}, {scores + causal, 1, 1}, causal);
    made = kForward(q, k, v, options);
    return {made.out};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    const int64_t causal = options.mask.causal ? 1 : 0;  // features of the other side, made again
    count_products({3 + causal, 2, 2}, {2 + causal, 2, 1}, 3 * causal);
    return tensors_of(kBackward(gradients[0], q, k, v, made, options));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {feature_attention_reference(in[0], in[1], in[2], options)};
  }
  // How often each row's features are multiplied with rows of omega, with rows of S and with z.
  struct RowProducts {
    int64_t omega, table, sums;
  };
  // `within`: how often all of 64 rows are multiplied with each other, by features and by values. The CPU's products
  // count themselves.
  void count_products(const RowProducts& of_queries, const RowProducts& of_keys, int64_t within) const {
    if (q.is_cpu()) return;
    const bool projected = options.omega.defined();
    const int64_t d = q.size(3), e = v.size(3), f = projected ? options.omega.size(0) : d;
    const auto numbers = [&](const RowProducts& row) {
      return row.omega * (projected ? d : 0) + row.table * e + row.sums * (options.divisor <= 0 ? 1 : 0);
    };
    add_executed_flops(2 * q.size(0) * q.size(1) *
                       (f * (q.size(2) * numbers(of_queries) + k.size(2) * numbers(of_keys)) +
                        within * q.size(2) * kTileSide * (f + e)));
  }
};

}  // namespace

at::Tensor feature_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const FeatureAttentionOptions& options) {
  XF_ASSERT(q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && k.size(2) == v.size(2) && q.size(3) == k.size(3),
            "feature attention takes [b,h,n,d], [b,h,m,d] and [b,h,m,e]");
  XF_ASSERT(options.omega.defined() || options.map != FeatureMap::kSoftmax, "softmax's features need a projection");
  const bool fits = q.is_cpu() || fits_feature_programs(q, k, v, options);
  const bool possible = !options.omega.defined() || options.omega.scalar_type() == at::toOpMathType(q.scalar_type());
  return run_fused(FeatureAttentionCall{q, k, v, options, {}}, fits && possible)[0];
}

}  // namespace xformer::kernels
