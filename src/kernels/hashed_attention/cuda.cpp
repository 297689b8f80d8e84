// Hashed attention on CUDA tensors (part of the plugin).
#include "kernels/hashed_attention/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/hashed_attention/device.h"
#include "kernels/operator.h"

namespace xformer::kernels {

namespace {

at::Tensor hash_buckets_cuda(const at::Tensor& q, const at::Tensor& directions, const std::vector<int64_t>& factors,
                             const HashedAttentionOptions& options) {
  return hash_buckets_device(q, directions, factors, options, cuda_launch(q, launch_hash_buckets));
}

HashedAttentionForward hashed_attention_forward_cuda(const at::Tensor& q, const at::Tensor& v,
                                                     const at::Tensor& buckets, const HashedAttentionOptions& options) {
  return hashed_attention_forward_device(q, v, buckets, options, cuda_launch(q, launch_hashed_attention_forward));
}

HashedAttentionGradients hashed_attention_backward_cuda(const at::Tensor& gradient, const at::Tensor& q,
                                                        const at::Tensor& v, const HashedAttentionForward& forward,
                                                        const HashedAttentionOptions& options) {
  return hashed_attention_backward_device(gradient, q, v, forward, options,
                                          cuda_launch(q, launch_hashed_attention_backward));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("hash_buckets", dispatched<hash_buckets_cuda>);
  library.impl("hashed_attention_forward", dispatched<hashed_attention_forward_cuda>);
  library.impl("hashed_attention_backward", dispatched<hashed_attention_backward_cuda>);
}

}  // namespace xformer::kernels
