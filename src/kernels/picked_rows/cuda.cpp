// Rows by a table of places on CUDA tensors (part of the plugin).
#include "kernels/picked_rows/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/operator.h"
#include "kernels/picked_rows/device.h"

namespace xformer::kernels {

namespace {

at::Tensor picked_rows_cuda(const at::Tensor& x, const at::Tensor& places) {
  return moved_rows_on_device(x, places, x.size(2), /*sums=*/false, cuda_launch(x, launch_moved_rows));
}

at::Tensor summed_rows_cuda(const at::Tensor& x, const at::Tensor& places, int64_t n) {
  return moved_rows_on_device(x, places, n, /*sums=*/true, cuda_launch(x, launch_moved_rows));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("picked_rows_forward", dispatched<picked_rows_cuda>);
  library.impl("picked_rows_backward", dispatched<summed_rows_cuda>);
}

}  // namespace xformer::kernels
