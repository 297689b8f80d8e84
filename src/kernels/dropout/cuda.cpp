// xformer::dropout on CUDA tensors (part of the plugin).
#include "kernels/dropout/cuda.h"

#include <ATen/Functions.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "kernels/dropout/numbers.h"

namespace xformer::kernels {

namespace {

DropoutType type_of(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return DropoutType::kFloat;
    case at::kDouble:
      return DropoutType::kDouble;
    case at::kHalf:
      return DropoutType::kHalf;
    case at::kBFloat16:
      return DropoutType::kBFloat16;
    default:
      TORCH_CHECK(false, "xformer::dropout takes floating types, not ", x.scalar_type());
  }
}

at::Tensor dropout_cuda(const at::Tensor& x, double p, const at::Tensor& state, int64_t site) {
  TORCH_CHECK(state.device() == x.device() && state.scalar_type() == at::kLong && state.numel() == 3,
              "xformer::dropout: the state is int64 [3] on the tensor's device");
  const at::Tensor source = x.contiguous();
  at::Tensor result = at::empty_like(source);
  if (source.numel() == 0) return result;
  const c10::cuda::CUDAGuard guard(x.device());
  // A view may begin anywhere, the kernel reads sixteen bytes at a time.
  const at::Tensor aligned = reinterpret_cast<uintptr_t>(source.const_data_ptr()) % 16 == 0 ? source : source.clone();
  C10_CUDA_CHECK(launch_dropout({type_of(x), aligned.const_data_ptr(), result.mutable_data_ptr(), source.numel(),
                                 source.numel() / source.size(0), dropout_threshold(p), state.const_data_ptr<int64_t>(),
                                 site, c10::cuda::getCurrentCUDAStream()}));
  return result;
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) { library.impl("dropout", dropout_cuda); }

}  // namespace xformer::kernels
