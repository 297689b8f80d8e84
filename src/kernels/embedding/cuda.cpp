// The embedding on CUDA tensors (part of the plugin).
#include "kernels/embedding/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/embedding/device.h"
#include "kernels/operator.h"

namespace xformer::kernels {

namespace {

at::Tensor embedding_forward_cuda(const at::Tensor& tokens, const at::Tensor& ids, const at::Tensor& positions,
                                  const DropoutPlace& drop, const at::Tensor& needed, at::ScalarType type) {
  return embedding_forward_device(tokens, ids, positions, drop, needed, type, cuda_launch(tokens, launch_embedding));
}

EmbeddingGradients embedding_backward_cuda(const at::Tensor& gradient, const at::Tensor& ids, int64_t token_rows,
                                           int64_t position_rows, const DropoutPlace& drop, const at::Tensor& needed) {
  return embedding_backward_device(gradient, ids, token_rows, position_rows, drop, needed,
                                   cuda_launch(gradient, launch_embedding));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("embedding_forward", dispatched<embedding_forward_cuda>);
  library.impl("embedding_backward", dispatched<embedding_backward_cuda>);
}

}  // namespace xformer::kernels
