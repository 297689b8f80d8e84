// The launches of rows by a table of places on a CUDA device, between host code that knows LibTorch and device code
// that does not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/picked_rows/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_moved_rows(const MovedRowsArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
