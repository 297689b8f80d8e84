// Work over tiles of a sequence's rows, of which only the results stay: what a tile makes inside is made again for the
// backward pass. For definitions that need far more room inside than they read and give.
#pragma once

#include <torch/types.h>

#include <functional>

namespace xformer::kernels {

using Tensors = std::vector<at::Tensor>;
// From some rows of the tensors that are cut, and the whole of the others, to as many rows of the result.
using RowTileWork = std::function<at::Tensor(const Tensors& rows, const Tensors& whole)>;

// `rows` [b,h,n,..] are cut along n into tiles of `tile` rows, `whole` are read by every tile; the results are joined
// along their third axis. The work must do the same whenever it is called. Tensors of whole numbers have no gradient.
[[nodiscard]] at::Tensor in_row_tiles(const Tensors& rows, const Tensors& whole, int64_t tile, const RowTileWork& work);

// Rows of a tile whose insides hold `row_elements` a row: about 2^22 elements, 16 MiB of floats.
[[nodiscard]] int64_t tile_rows(int64_t row_elements);

}  // namespace xformer::kernels
