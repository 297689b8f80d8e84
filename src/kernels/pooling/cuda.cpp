// Pooling and repeating on CUDA tensors (part of the plugin).
#include "kernels/pooling/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/operator.h"
#include "kernels/pooling/device.h"

namespace xformer::kernels {

namespace {

std::vector<at::Tensor> pool_forward_cuda(const at::Tensor& x, const at::Tensor& key_valid, const GroupLists& groups,
                                          int64_t pinned) {
  return pooled_on_device(x, key_valid, groups, pinned, /*mean=*/true, cuda_launch(x, launch_pooling));
}
at::Tensor pool_backward_cuda(const std::vector<at::Tensor>& gradients, const at::Tensor& key_valid, int64_t n,
                              const GroupLists& groups, int64_t pinned) {
  return repeated_on_device(gradients, key_valid, n, groups, pinned, /*share=*/true,
                            cuda_launch(gradients[0], launch_repeating));
}
at::Tensor repeat_forward_cuda(const std::vector<at::Tensor>& pooled, int64_t n, const GroupLists& groups,
                               int64_t pinned) {
  return repeated_on_device(pooled, {}, n, groups, pinned, /*share=*/false, cuda_launch(pooled[0], launch_repeating));
}
std::vector<at::Tensor> repeat_backward_cuda(const at::Tensor& gradient, const GroupLists& groups, int64_t pinned) {
  return pooled_on_device(gradient, {}, groups, pinned, /*mean=*/false, cuda_launch(gradient, launch_pooling));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("pool_heads_forward", dispatched<pool_forward_cuda>);
  library.impl("pool_heads_backward", dispatched<pool_backward_cuda>);
  library.impl("repeat_heads_forward", dispatched<repeat_forward_cuda>);
  library.impl("repeat_heads_backward", dispatched<repeat_backward_cuda>);
}

}  // namespace xformer::kernels
