// Feature attention on CUDA tensors (part of the plugin).
#include "kernels/feature_attention/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/feature_attention/device.h"
#include "kernels/operator.h"

namespace xformer::kernels {

namespace {

FeatureAttentionForward feature_attention_forward_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                       const FeatureAttentionOptions& options) {
  return feature_attention_forward_device(q, k, v, options, cuda_launch(q, launch_feature_stage));
}

FeatureAttentionGradients feature_attention_backward_cuda(const at::Tensor& gradient, const at::Tensor& q,
                                                          const at::Tensor& k, const at::Tensor& v,
                                                          const FeatureAttentionForward& forward,
                                                          const FeatureAttentionOptions& options) {
  return feature_attention_backward_device(gradient, q, k, v, forward, options, cuda_launch(q, launch_feature_stage));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("feature_attention_forward", dispatched<feature_attention_forward_cuda>);
  library.impl("feature_attention_backward", dispatched<feature_attention_backward_cuda>);
}

}  // namespace xformer::kernels
