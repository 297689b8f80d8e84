// A classifier on CUDA tensors (part of the plugin).
#include "kernels/classifier/cuda.h"

#include "kernels/classifier/device.h"
#include "kernels/device/cuda_launch.h"
#include "kernels/linear/cuda.h"
#include "kernels/operator.h"

namespace xformer::kernels {

namespace {

ClassifierForward classifier_forward_cuda(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                          const std::vector<at::Tensor>& biases) {
  return classifier_forward_device(x, weights, biases, cuda_launch(x, launch_classifier_forward));
}

LinearGradients classifier_backward_cuda(const at::Tensor& gradient, const at::Tensor& x,
                                         const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases,
                                         const std::vector<at::Tensor>& hidden, bool x_wanted) {
  return classifier_backward_device(gradient, x, weights, biases, hidden, x_wanted,
                                    cuda_launch(x, launch_classifier_backward),
                                    cuda_launch(x, launch_weight_gradients));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("classifier_forward", dispatched<classifier_forward_cuda>);
  library.impl("classifier_backward", dispatched<classifier_backward_cuda>);
}

}  // namespace xformer::kernels
