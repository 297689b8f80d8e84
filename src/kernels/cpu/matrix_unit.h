// Products of tiles of bf16 by the matrix unit of Intel's processors (AMX), which LIBXSMM 1.17 does not know. Intel's
// instruction for pairs in AVX-512's registers runs there at half the rate of fp32. Measured on one core of a Xeon
// with both, GFLOP/s of a panel that lies in the cache:
//   rows x columns x inner      LIBXSMM, fp32    LIBXSMM, bf16    oneDNN by LibTorch's brgemm    here
//   64 x 64 x 32                 194              121               616                           1,280
//   64 x 32 x 256                199              121             1,460                           1,700
//   256 x 64 x 64                195              120             1,140                           1,320
//   256 x 64 x 128               220              121             1,540                           1,930
//   256 x 64 x 256               197              121             2,460                           1,940
//   17 x 64 x 34                 195              121                99                             179
// oneDNN's with the unit given back behind each product: kept, its settings could be another's by the next one.
#pragma once

#include <c10/util/BFloat16.h>

#include "kernels/cpu/tile_product.h"

namespace xformer::kernels {

// Whether the processor has the unit and the system lets this process use it, for which it is asked once.
[[nodiscard]] bool has_matrix_unit();

// The product of a shape of pairs (tile_product.h) whose a is not transposed; where has_matrix_unit(). Subnormal
// factors and sums are 0.
void multiply_by_matrix_unit(const TileShape& shape, const c10::BFloat16* b, const c10::BFloat16* a, float* c);

}  // namespace xformer::kernels
