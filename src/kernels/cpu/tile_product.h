// Products of tiles by machine code for exactly their shape, which LIBXSMM's generator makes when the shape is first
// met. Only the generator is linked, libxsmmgen: no BLAS symbol, no file under /tmp and nothing that runs before
// main(). Says too whether a matrix unit (matrix_unit.h) takes bf16's in its place.
#pragma once

#include <cstdint>
#include <string>

namespace xformer::kernels {

// c [rows, columns] = a b, or c + a b where it adds; row-major, strides in elements. a is stored [inner, rows] where it
// is transposed. Pairs: a and b are bf16, c float, inner and a's stride even, and b holds pairs of rows interleaved:
// [inner / 2, columns, 2], its stride counted in pairs.
struct TileShape {
  int32_t rows, columns, inner, a_stride, b_stride, c_stride;
  bool a_transposed = false, adds = false, pairs = false;

  friend bool operator==(const TileShape&, const TileShape&) = default;
};

using TileProduct = void (*)(const void* b, const void* a, void* c);

struct TileProducts {
  bool available = false;  // the processor has AVX2 and FMA, and the system lets a program make code
  bool pairs = false;      // it multiplies bf16 by an instruction of its own
  bool unit = false;       // pairs are its matrix unit's
  std::string name;        // "libxsmm 1.17, avx512", of the instruction set that code is made for
  std::string note;        // one line where this is less than the processor has, or than LIBXSMM_TARGET asks for
};

// What this process can do, found out once. LIBXSMM_TARGET names an instruction set, in LIBXSMM's words ("spr" has the
// matrix unit); one that the processor lacks is not believed.
[[nodiscard]] const TileProducts& tile_products();

// The code for a shape, from any thread, without a lock once it is there. Pairs need AVX-512, and are fast where
// tile_products() says so. ResourceError where the system has no memory for it.
[[nodiscard]] TileProduct tile_product(const TileShape& shape);
// Shapes that have code by now.
[[nodiscard]] int64_t tile_products_made();

}  // namespace xformer::kernels
