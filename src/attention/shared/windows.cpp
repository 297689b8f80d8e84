#include "attention/shared/windows.h"

namespace xformer::attention {

int64_t layer_window(const std::vector<int64_t>& windows, int64_t layer) {
  return windows[static_cast<size_t>(layer) % windows.size()];
}

at::Tensor window_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& key_valid,
                            const Windows& windows, const kernels::Dropout& dropout, bool training,
                            const ExtraKeys& extra, at::Tensor* log_sum) {
  return kernels::window_attention(q, k, v, extra, {windows, key_valid, dropout.place(training)}, log_sum);
}

}  // namespace xformer::attention
