// Products of small matrices that lie in the cache, on the thread that asks.
//
// float and bf16 by LIBXSMM (tile_product.h) wherever the processor has AVX2 and FMA: on tiles of our operators' shapes
// it ran at 0.8 to 1.4 times MKL's rate on a Xeon with AVX-512, at 1.5 to 2.8 times where MKL keeps to AVX2, as it does
// on processors that are not Intel's. By the BLAS that LibTorch brings: double, --kernels=blas, older processors,
// systems that let no program make code, and fewer than four rows by a transposed matrix. The choice and the order of
// summation depend on the machine and the shape alone, never on timing or threads.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>
#include <string>

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

// What the last does on processors with an instruction for it, which AVX-512 can stand in for, slowly: no FLOPs
// counted.
void gemm_by_pairs(int64_t rows, int64_t columns, int64_t inner, float alpha, Operand<c10::BFloat16> a,
                   Operand<c10::BFloat16> b, float beta, float* c, int64_t c_stride);

// Which libraries multiplied float or bf16 since the start of the process or the last reset: "libxsmm 1.17, avx512",
// "mkl", both joined by "+", or "".
[[nodiscard]] std::string products_run();
void reset_products();

}  // namespace xformer::kernels
