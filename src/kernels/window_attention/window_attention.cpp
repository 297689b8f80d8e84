#include "kernels/window_attention/window_attention.h"

#include "core/error.h"
#include "kernels/fused.h"
#include "kernels/window_attention/cpu.h"
#include "kernels/window_attention/device.h"

namespace xformer::kernels {

namespace {

struct WindowAttentionCall {
  at::Tensor q, k, v;
  ExtraKeys extra;
  RelativeKeys relative;
  WindowAttentionOptions options;
  bool with_sums;  // of the reference; kernels make them anyway
  WindowAttentionForward made;

  static constexpr const char* kName = "window_attention";
  static inline const Operator<window_attention_forward_cpu> kForward{"window_attention_forward"};
  static inline const Operator<window_attention_backward_cpu> kBackward{"window_attention_backward"};
  static constexpr bool kReports = true, kPartialGradients = true, kTakesBf16 = true;
  static bool is_parameter(size_t input) { return input >= 5; }
  static bool takes_half(size_t input) { return !is_parameter(input); }
  static bool is_statistic(size_t output) { return output == 1; }

  [[nodiscard]] variable_list inputs() const { return {q, k, v, extra.k, extra.v, relative.vectors, relative.bias}; }
  variable_list forward() {
    // Where a row's bits are little beside its query. With distances, pieces of rows are drawn.
    constexpr int64_t kFewKeys = 256;
    const Windows& windows = options.windows;
    const int64_t width = extra.count() + windows.columns_per_block();
    if (q.is_cpu() && !relative.defined() && width <= kFewKeys)
      options.dropout = remembering(
          options.dropout, q.size(0) * q.size(1) * windows.dilation * windows.blocks * windows.block * width, width);
    made = kForward(q, k, v, extra, relative, options);
    return {made.out, made.log_sum};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return tensors_of(kBackward(gradients[0], gradients[1], q, k, v, extra, relative, made, options));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    at::Tensor sums;
    const at::Tensor out =
        window_attention_reference(in[0], in[1], in[2], {in[3], in[4], extra.allowed, extra.places, extra.bias},
                                   options, with_sums ? &sums : nullptr, {in[5], in[6]});
    return {out, sums};
  }
};

}  // namespace

bool window_attention_runs_fused(const at::Tensor& heads) {
  return (heads.is_cpu() || fits_window_programs({heads}, {})) && fused_type<WindowAttentionCall>({heads});
}

at::Tensor window_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const ExtraKeys& extra,
                            const WindowAttentionOptions& options, at::Tensor* log_sum, const RelativeKeys& relative) {
  const Windows& windows = options.windows;
  XF_ASSERT(q.size(2) == windows.length && k.size(2) == windows.length, "windows over {} tokens got {} and {}",
            windows.length, q.size(2), k.size(2));
  const int64_t offsets = windows.back + 1 + windows.ahead;
  XF_ASSERT(!relative.defined() || (relative.vectors.size(0) == offsets && relative.bias.size(1) == offsets),
            "windows of {} offsets got {} vectors and {} numbers", offsets, relative.vectors.size(0),
            relative.bias.size(1));
  const ExtraKeys used = extra.count() > 0 ? extra : ExtraKeys();
  const variable_list result = run_fused(WindowAttentionCall{q, k, v, used, relative, options, log_sum != nullptr, {}},
                                         q.is_cpu() || fits_window_programs({q, k, v, used.k, used.v}, relative));
  if (log_sum != nullptr) *log_sum = result[1];
  return result[0];
}

}  // namespace xformer::kernels
