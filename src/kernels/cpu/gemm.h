// Products of small matrices that lie in the cache, on the thread that asks, by the BLAS that LibTorch brings. Inside
// a parallel region it uses that one thread.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace xformer::kernels {

// A row-major matrix whose rows begin `stride` elements apart; the product takes it transposed if so marked.
template <class Value>
struct Operand {
  const Value* data;
  int64_t stride;
  bool transposed = false;
};

// c [rows, columns] = alpha a b + beta c, with `inner` the length of a's rows and b's columns (after transposing). With
// beta 0, c may hold anything. Its FLOPs are counted as executed (tensor/op_counter.h).
void gemm(int64_t rows, int64_t columns, int64_t inner, float alpha, Operand<float> a, Operand<float> b, float beta,
          float* c, int64_t c_stride);
void gemm(int64_t rows, int64_t columns, int64_t inner, double alpha, Operand<double> a, Operand<double> b, double beta,
          double* c, int64_t c_stride);
// bf16 factors, fp32 sums and result.
void gemm(int64_t rows, int64_t columns, int64_t inner, float alpha, Operand<c10::BFloat16> a, Operand<c10::BFloat16> b,
          float beta, float* c, int64_t c_stride);

}  // namespace xformer::kernels
