#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "kernels/cpu/vectorised.h"
#include "tensor/op_counter.h"

// Fortran's interface, exported by LibTorch's libraries: columns first, so the operands change places.
extern "C" {
void sgemm_(const char* trans_a, const char* trans_b, const int* m, const int* n, const int* k, const float* alpha,
            const float* a, const int* lda, const float* b, const int* ldb, const float* beta, float* c,
            const int* ldc);
void dgemm_(const char* trans_a, const char* trans_b, const int* m, const int* n, const int* k, const double* alpha,
            const double* a, const int* lda, const double* b, const int* ldb, const double* beta, double* c,
            const int* ldc);
}

namespace xformer::kernels {

namespace {

template <class Value, class Blas>
void call_blas(const Blas& blas, int64_t rows, int64_t columns, int64_t inner, Value alpha, Operand<Value> a,
               Operand<Value> b, Value beta, Value* c, int64_t c_stride) {
  if (rows == 0 || columns == 0) return;
  add_executed_flops(2 * rows * columns * inner);
  const int m = static_cast<int>(columns), n = static_cast<int>(rows), k = static_cast<int>(inner);
  // A single row may have any stride; BLAS wants one that holds a row.
  const auto stride_of = [](const Operand<Value>& x, int64_t row, int64_t turned) {
    return static_cast<int>(std::max(x.stride, x.transposed ? turned : row));
  };
  const int lda = stride_of(b, columns, inner), ldb = stride_of(a, inner, rows), ldc = static_cast<int>(c_stride);
  blas(b.transposed ? "T" : "N", a.transposed ? "T" : "N", &m, &n, &k, &alpha, b.data, &lda, a.data, &ldb, &beta, c,
       &ldc);
}

// `rows` rows of `width` numbers one after the other. A bf16 number is the upper half of the float it stands for.
XFORMER_VECTORISED void widen(int64_t rows, int64_t width, const c10::BFloat16* from, int64_t stride, float* to) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < width; ++i)
      to[r * width + i] = std::bit_cast<float>(static_cast<uint32_t>(from[r * stride + i].x) << 16);
}

// The factor [rows, columns] in float, in `room`.
Operand<float> widened(int64_t rows, int64_t columns, Operand<c10::BFloat16> from, std::vector<float>& room) {
  if (from.transposed) std::swap(rows, columns);
  room.resize(std::max(room.size(), static_cast<size_t>(rows * columns)));
  widen(rows, columns, from.data, from.stride, room.data());
  return {room.data(), columns, from.transposed};
}

}  // namespace

void gemm(int64_t rows, int64_t columns, int64_t inner, float alpha, Operand<float> a, Operand<float> b, float beta,
          float* c, int64_t c_stride) {
  call_blas<float>(sgemm_, rows, columns, inner, alpha, a, b, beta, c, c_stride);
}

void gemm(int64_t rows, int64_t columns, int64_t inner, double alpha, Operand<double> a, Operand<double> b, double beta,
          double* c, int64_t c_stride) {
  call_blas<double>(dgemm_, rows, columns, inner, alpha, a, b, beta, c, c_stride);
}

void gemm(int64_t rows, int64_t columns, int64_t inner, float alpha, Operand<c10::BFloat16> a, Operand<c10::BFloat16> b,
          float beta, float* c, int64_t c_stride) {
  thread_local std::vector<float> left, right;
  const Operand<float> wide_a = widened(rows, inner, a, left), wide_b = widened(inner, columns, b, right);
  gemm(rows, columns, inner, alpha, wide_a, wide_b, beta, c, c_stride);
}

}  // namespace xformer::kernels
