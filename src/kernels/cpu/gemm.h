// Products of small matrices that lie in the cache, on the thread that asks.
//
// By LIBXSMM (tile_product.h) wherever the processor has AVX2 and FMA, bf16 by its matrix unit where it has one
// (matrix_unit.h): on tiles of our operators' shapes LIBXSMM ran at 0.8 to 1.4 times MKL's rate on a Xeon with AVX-512,
// at 1.5 to 2.8 times where MKL keeps to AVX2, as it does on processors that are not Intel's. By the BLAS that LibTorch
// brings: double, --kernels=blas, older processors, systems that let no program make code, and fewer than four rows by
// a transposed matrix. The choice and the order of summation depend on the machine and the shape alone, never on timing
// or threads.
#pragma once

#include <ATen/OpMathType.h>
#include <c10/util/BFloat16.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace xformer::kernels {

// A row-major matrix whose rows begin `stride` elements apart; the product takes it transposed if so marked.
template <class Value>
struct Operand {
  const Value* data;
  int64_t stride;
  bool transposed = false;
  // A zero follows on each row, as pairs of a row's odd last number need it: with_zero_behind().
  bool zero_behind = false;
};

// Rows of `count` numbers, `stride` apart, as a first factor that need not be copied where it goes by pairs.
template <class Value>
[[nodiscard]] Operand<Value> with_zero_behind(Value* factor, int64_t rows, int64_t count, int64_t stride) {
  const bool pairs = std::is_same_v<Value, c10::BFloat16> && count % 2 == 1 && count < stride;
  for (int64_t r = 0; pairs && r < rows; ++r) factor[r * stride + count] = Value(0);
  return {factor, stride, false, pairs};
}

// How much of a dimension of which so much is left one call of generated code takes: as much as may be, then the
// largest multiple of 16, then the rest. So lengths that change from sample to sample need few kinds of code.
[[nodiscard]] constexpr int64_t piece_of(int64_t left, int64_t most) {
  return left >= most ? most : left <= 48 ? left : left / 16 * 16;
}

// c [rows, columns] = alpha a b + beta c, with `inner` the length of a's rows and b's columns (after transposing). With
// beta 0, c may hold anything. Its FLOPs are counted as executed (tensor/op_counter.h).
void gemm(int64_t rows, int64_t columns, int64_t inner, float alpha, Operand<float> a, Operand<float> b, float beta,
          float* c, int64_t c_stride);
void gemm(int64_t rows, int64_t columns, int64_t inner, double alpha, Operand<double> a, Operand<double> b, double beta,
          double* c, int64_t c_stride);
// bf16 factors, fp32 sums and result.
void gemm(int64_t rows, int64_t columns, int64_t inner, float alpha, Operand<c10::BFloat16> a, Operand<c10::BFloat16> b,
          float beta, float* c, int64_t c_stride);

// c [rows, columns] = a b + beta c with the second factor as it was computed, rounded to the first one's type while it
// is laid out. For float, double and bf16.
template <class Value>
void gemm_rounding(int64_t rows, int64_t columns, int64_t inner, Operand<Value> a, Operand<at::opmath_type<Value>> b,
                   at::opmath_type<Value> beta, at::opmath_type<Value>* c, int64_t c_stride);

// The second factor of several products, alpha b [inner, columns], laid out once as generated code reads it. Where
// other code multiplies, or the products have few rows in all, b is read where it lies, so it must stay there as long.
template <class Value>
class PackedFactor {
 public:
  using Number = at::opmath_type<Value>;
  PackedFactor() = default;
  PackedFactor(PackedFactor&&) = default;
  PackedFactor& operator=(PackedFactor&&) = default;
  // For products of so many rows in all.
  void pack(int64_t rows, int64_t inner, int64_t columns, Number alpha, Operand<Value> b);
  // Rounded first; b need not stay where it is.
  void pack(int64_t rows, int64_t inner, int64_t columns, Number alpha,
            Operand<Number> b) requires(!std::is_same_v<Value, Number>);

 private:
  template <class Any>
  friend void gemm(int64_t rows, Operand<Any> a, const PackedFactor<Any>& b, at::opmath_type<Any> beta,
                   at::opmath_type<Any>* c, int64_t c_stride);

  int64_t inner_ = 0, columns_ = 0;
  Number alpha_ = 1;
  Operand<Value> b_{nullptr, 0};
  std::vector<Value> room_, rounded_;
  const Value* panels_ = nullptr;  // in room_; nullptr: other code multiplies
};

// c [rows, columns] = a b + beta c: the bits of the products above, with the factor as it was packed. For float, double
// and bf16.
template <class Value>
void gemm(int64_t rows, Operand<Value> a, const PackedFactor<Value>& b, at::opmath_type<Value> beta,
          at::opmath_type<Value>* c, int64_t c_stride);

// The second factor [inner, columns] of a product of bf16, laid out in panels of pairs of rows by whoever computes its
// numbers: for the code that multiplies where pairs_possible().
class PairedFactor {
 public:
  void reset(int64_t inner, int64_t columns);
  // Columns that a panel has of which so many are left.
  [[nodiscard]] static int64_t panel_width(int64_t left) { return piece_of(left, kWidth); }
  // Numbers that lie between two pairs of rows of a panel so wide.
  [[nodiscard]] static int64_t line_of(int64_t width) { return (width + 15) / 16 * 16; }
  // Rows go by in pieces; the one that begins with row k has so many. A row behind an odd number of them is zeros.
  [[nodiscard]] int64_t piece_rows(int64_t k) const { return piece_of(depth() - k, kDepth); }
  // Where the pairs of rows of a piece are in the panel that begins with column `first`, one behind the other.
  [[nodiscard, gnu::always_inline]] uint32_t* panel(int64_t k, int64_t rows, int64_t first) {
    return panels_ + (k * line_of(columns_) + first * rows) / 2;
  }
  // Of them that of rows 2 place and 2 place + 1, with room for the next multiple of 16.
  [[nodiscard, gnu::always_inline]] uint32_t* pairs(int64_t place, int64_t first) {
    int64_t k = 2 * place / kDepth * kDepth, rows = piece_rows(k);
    if (2 * place >= k + rows) k += rows, rows = piece_rows(k);
    return panel(k, rows, first) + (place - k / 2) * line_of(panel_width(columns_ - first));
  }
  // One number becomes 0.
  void clear(int64_t row, int64_t column) {
    int64_t first = column / kWidth * kWidth;
    if (const int64_t width = panel_width(columns_ - first); column >= first + width) first += width;
    pairs(row / 2, first)[column - first] &= row % 2 == 0 ? 0xFFFF0000U : 0xFFFFU;
  }

 private:
  friend void gemm(int64_t rows, Operand<c10::BFloat16> a, const PairedFactor& b, float beta, float* c,
                   int64_t c_stride);
  static constexpr int64_t kWidth = 64, kDepth = 256;

  // Rows with the one that makes pairs.
  [[nodiscard]] int64_t depth() const { return (inner_ + 1) / 2 * 2; }

  int64_t inner_ = 0, columns_ = 0;
  std::vector<uint32_t> room_;
  uint32_t* panels_ = nullptr;
};

// Whether products of such factors and results are by the code that takes pairs, and the processor has what lays them
// out (lanes_512.h).
[[nodiscard]] bool pairs_possible(Operand<c10::BFloat16> a, int64_t c_stride);

// c [rows, columns] = a b + beta c.
void gemm(int64_t rows, Operand<c10::BFloat16> a, const PairedFactor& b, float beta, float* c, int64_t c_stride);

// What the product of bf16 does on processors with an instruction for it, which AVX-512 can stand in for, slowly: no
// FLOPs counted.
void gemm_by_pairs(int64_t rows, int64_t columns, int64_t inner, float alpha, Operand<c10::BFloat16> a,
                   Operand<c10::BFloat16> b, float beta, float* c, int64_t c_stride);

// What multiplied float or bf16 since the start of the process or the last reset: "libxsmm 1.17, avx512", "amx-bf16",
// "mkl", joined by "+" where it is several, or "".
[[nodiscard]] std::string products_run();
void reset_products();

}  // namespace xformer::kernels
