/* Products [batch, rows, inner] x [batch, inner, columns] by LIBXSMM, whose kernels are made for small matrices: tiles of
   them on OpenMP's threads, row-major and without gaps. For the comparison with PyTorch: what the machine can do.

   LIBXSMM counts columns first, so the operands change places. In bf16 it wants the rows of `right` in pairs, as
   [inner / 2, columns, 2]. */
#include <libxsmm.h>
#include <omp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { kRows = 128, kColumns = 256, kInner = 512 };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t pieces(int64_t whole, int64_t piece) { return (whole + piece - 1) / piece; }

/* c += a b for one tile, c = a b with beta 0. 0: there is no kernel for it on this machine. */
static int tile(int half, int64_t rows, int64_t columns, int64_t inner, const char* a, int64_t a_stride, const char* b,
                int64_t b_stride, float beta, float* c, int64_t c_stride) {
  const libxsmm_blasint lda = (libxsmm_blasint)b_stride, ldb = (libxsmm_blasint)a_stride, ldc = (libxsmm_blasint)c_stride;
  const libxsmm_blasint m = (libxsmm_blasint)columns, n = (libxsmm_blasint)rows, k = (libxsmm_blasint)inner;
  const float alpha = 1;
  const int prefetch = LIBXSMM_GEMM_PREFETCH_NONE, flags = half ? LIBXSMM_GEMM_FLAG_VNNI_A : LIBXSMM_GEMM_FLAG_NONE;
  if (half) {
    const libxsmm_bsmmfunction kernel = libxsmm_bsmmdispatch(m, n, k, &lda, &ldb, &ldc, &alpha, &beta, &flags, &prefetch);
    if (kernel != NULL) kernel((const libxsmm_bfloat16*)b, (const libxsmm_bfloat16*)a, c);
    return kernel != NULL;
  }
  const libxsmm_smmfunction kernel = libxsmm_smmdispatch(m, n, k, &lda, &ldb, &ldc, &alpha, &beta, &flags, &prefetch);
  if (kernel != NULL) kernel((const float*)b, (const float*)a, c);
  return kernel != NULL;
}

/* 1: done; 0: not here, or no memory. `half`: the operands are bf16, the result is float in both. */
int tiled_product(int half, int64_t batch, int64_t rows, int64_t columns, int64_t inner, const char* left,
                  const char* right, float* result) {
  const int64_t size = half ? 2 : 4, down = pieces(rows, kRows), across = pieces(columns, kColumns);
  const int64_t tiles = batch * down * across, depth = pieces(inner, kInner);
  /* Few tiles: their inner length is dealt out too, into sums that are added up. */
  const int64_t parts = least(depth, pieces(omp_get_max_threads(), tiles)), part_depth = pieces(depth, parts);
  const int64_t elements = batch * rows * columns;
  float* const sums = parts > 1 ? malloc((size_t)((parts - 1) * elements) * sizeof(float)) : NULL;
  int good = parts == 1 || sums != NULL;
  if (!good) return 0;
#pragma omp parallel for reduction(& : good) schedule(dynamic)
  for (int64_t unit = 0; unit < tiles * parts; ++unit) {
    const int64_t part = unit / tiles, one = unit % tiles, z = one / (down * across);
    const int64_t row = one / across % down * kRows, column = one % across * kColumns;
    const int64_t height = least(kRows, rows - row), width = least(kColumns, columns - column);
    float* const into = (part == 0 ? result : sums + (part - 1) * elements) + (z * rows + row) * columns + column;
    const int64_t first = part * part_depth * kInner, end = least(inner, first + part_depth * kInner);
    if (first >= end)
      for (int64_t r = 0; r < height; ++r) memset(into + r * columns, 0, (size_t)width * sizeof(float));
    for (int64_t k = first; k < end; k += kInner)
      good &= tile(half, height, width, least(kInner, end - k), left + ((z * rows + row) * inner + k) * size, inner,
                   right + (z * inner * columns + k * columns + column * (half ? 2 : 1)) * size, columns, k > first, into,
                   columns);
  }
  for (int64_t part = 1; part < parts; ++part)
    for (int64_t i = 0; i < elements; ++i) result[i] += sums[(part - 1) * elements + i];
  free(sums);
  return good;
}
