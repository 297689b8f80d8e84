// What LibTorch's products of whole matrices are multiplied by.
#pragma once

namespace xformer::kernels {

// Whether LibTorch's products of float use AVX-512: MKL does on Intel's processors alone, and not where
// MKL_ENABLE_INSTRUCTIONS says less. Else tiles of our own are up to twice as fast where the processor has it.
[[nodiscard]] bool blas_has_512();

}  // namespace xformer::kernels
