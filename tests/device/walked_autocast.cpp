// Autocast on the walked device, which LibTorch leaves to whoever has such a device: its lists of operators, as on
// CUDA.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace xformer::kernels {

TORCH_LIBRARY_IMPL(_, AutocastHPU, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

#define XFORMER_IN_16_BITS(...) KERNEL(c10::DeviceType::HPU, __VA_ARGS__, lower_precision_fp)
#define XFORMER_IN_FLOAT(...) KERNEL(c10::DeviceType::HPU, __VA_ARGS__, fp32)

TORCH_LIBRARY_IMPL(aten, AutocastHPU, m) {
  AT_FORALL_LOWER_PRECISION_FP(XFORMER_IN_16_BITS)
  AT_FORALL_FP32(XFORMER_IN_FLOAT)
}

#undef XFORMER_IN_16_BITS
#undef XFORMER_IN_FLOAT

}  // namespace xformer::kernels
