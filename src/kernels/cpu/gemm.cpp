#include "kernels/cpu/gemm.h"

#include <ATen/Context.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels/cpu/lanes_512.h"
#include "kernels/cpu/matrix_unit.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/tile_product.h"
#include "kernels/policy.h"
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

using c10::BFloat16;

// What multiplied since reset_products().
std::atomic<bool> tiles_ran{false}, unit_ran{false}, blas_ran{false};
void mark(std::atomic<bool>& ran) {
  // Read first: a line of the cache that all threads write would cost more than a small product.
  if (!ran.load(std::memory_order_relaxed)) ran.store(true, std::memory_order_relaxed);
}

template <class Value, class Blas>
void call_blas(const Blas& blas, int64_t rows, int64_t columns, int64_t inner, Value alpha, Operand<Value> a,
               Operand<Value> b, Value beta, Value* c, int64_t c_stride) {
  const int m = static_cast<int>(columns), n = static_cast<int>(rows), k = static_cast<int>(inner);
  // A single row may have any stride; BLAS wants one that holds a row.
  const auto stride_of = [](const Operand<Value>& x, int64_t row, int64_t turned) {
    return static_cast<int>(std::max(x.stride, x.transposed ? turned : row));
  };
  const int lda = stride_of(b, columns, inner), ldb = stride_of(a, inner, rows), ldc = static_cast<int>(c_stride);
  blas(b.transposed ? "T" : "N", a.transposed ? "T" : "N", &m, &n, &k, &alpha, b.data, &lda, a.data, &ldb, &beta, c,
       &ldc);
}

// What a call of generated code takes at most: a panel of b, [deep, wide], and a's part stay in the caches next to the
// processor. Measured: panels of 64 columns, packed, reach 85 to 100% of the rate of operands that lie there already.
constexpr int64_t kTall = 256, kWide = 64, kDeep = 256;
// Where a is transposed, elements of one sum that lie so far apart push each other out of the cache. They are put side
// by side, at a distance that is no power of two.
constexpr int64_t kFar = 512, kFarStride = kTall + 16;
// So many rows use a panel often enough to pay for packing one that could be read where it lies.
constexpr int64_t kReused = 32;
// With fewer, packing a transposed b costs more than the product.
constexpr int64_t kFewRows = 4;
// Code has strides of operands as constants of 32 bits, times the elements' size and a few rows.
constexpr int64_t kLargestStride = int64_t{1} << 20;

// The pieces of a dimension, by its size alone.
template <class Use>
void for_pieces(int64_t size, int64_t most, const Use& use) {
  for (int64_t at = 0, piece = 0; at < size; at += piece) {
    piece = piece_of(size - at, most);
    use(at, piece);
  }
}

// Room for `size` elements that begins with a line of the cache.
template <class Value>
Value* aligned(std::vector<Value>& room, int64_t size) {
  constexpr uintptr_t kLine = 64;
  room.resize(std::max(room.size(), static_cast<size_t>(size) + kLine / sizeof(Value)));
  const auto address = reinterpret_cast<uintptr_t>(room.data());
  return room.data() + ((address + kLine - 1) / kLine * kLine - address) / sizeof(Value);
}

int64_t panel_stride(int64_t width) { return (width + 15) / 16 * 16; }

void scale(int64_t rows, int64_t columns, float factor, float* c, int64_t stride) {
  if (factor != 0) return pack_rows(rows, columns, factor, c, stride, c, stride);
  for (int64_t i = 0; i < rows; ++i) std::fill_n(c + i * stride, columns, 0.0F);
}

// c (+)= a b for one piece of each dimension. A matrix of a single row may have any stride.
template <class Value>
void multiply_piece(int64_t rows, int64_t columns, int64_t inner, const Operand<Value>& a, const Value* b,
                    int64_t b_stride, float* c, int64_t c_stride, bool adds) {
  const auto number = [](int64_t value) { return static_cast<int32_t>(value); };
  const TileShape shape{number(rows),
                        number(columns),
                        number(inner),
                        number(std::max(a.stride, a.transposed ? rows : inner)),
                        number(std::max(b_stride, columns)),
                        number(std::max(c_stride, columns)),
                        a.transposed,
                        adds,
                        std::is_same_v<Value, BFloat16>};
  if constexpr (std::is_same_v<Value, BFloat16>)
    if (tile_products().unit) return multiply_by_matrix_unit(shape, b, a.data, c);
  tile_product(shape)(b, a.data, c);
}

// The part of a matrix that begins at this row and column of it.
template <class Value>
Operand<Value> part(const Operand<Value>& x, int64_t row, int64_t column) {
  return {x.data + (x.transposed ? column * x.stride + row : row * x.stride + column), x.stride, x.transposed};
}

// right(k, depth, j, width) is where that piece of b lies, and its stride.
template <class Right>
void multiply(int64_t rows, int64_t columns, int64_t inner, Operand<float> a, float beta, float* c, int64_t c_stride,
              const Right& right) {
  thread_local std::vector<float> room;
  const bool packs_a = a.transposed && a.stride >= kFar;
  float* const packed = packs_a ? aligned(room, kFarStride * kDeep) : nullptr;
  for_pieces(rows, kTall, [&](int64_t i, int64_t height) {
    for_pieces(inner, kDeep, [&](int64_t k, int64_t depth) {
      Operand<float> left = part(a, i, k);
      if (packs_a) {
        pack_rows(depth, height, 1, left.data, a.stride, packed, kFarStride);
        left = {packed, kFarStride, true};
      }
      for_pieces(columns, kWide, [&](int64_t j, int64_t width) {
        const Operand<float> piece = right(k, depth, j, width);
        multiply_piece(height, width, depth, left, piece.data, piece.stride, c + i * c_stride + j, c_stride,
                       beta != 0 || k > 0);
      });
    });
  });
}

void pack_panel(int64_t depth, int64_t width, float alpha, const Operand<float>& b, float* to) {
  if (b.transposed) pack_transposed(depth, width, alpha, b.data, b.stride, to, panel_stride(width));
  else pack_rows(depth, width, alpha, b.data, b.stride, to, panel_stride(width));
}

void multiply(int64_t rows, int64_t columns, int64_t inner, float alpha, Operand<float> a, Operand<float> b, float beta,
              float* c, int64_t c_stride) {
  thread_local std::vector<float> room;
  const bool packs = b.transposed || alpha != 1 || (b.stride > kWide && rows >= kReused);
  float* const packed = packs ? aligned(room, kWide * kDeep) : nullptr;
  multiply(rows, columns, inner, a, beta, c, c_stride, [&](int64_t k, int64_t depth, int64_t j, int64_t width) {
    const Operand<float> piece = part(b, k, j);
    if (!packs) return piece;
    pack_panel(depth, width, alpha, piece, packed);
    return Operand<float>{packed, panel_stride(width)};
  });
}

// Where the panel of b from row k and column j on begins, among those of `depth` rows; all but the last columns' are of
// multiples of 16.
int64_t panel_place(int64_t columns, int64_t k, int64_t depth, int64_t j) {
  return k * panel_stride(columns) + j * depth;
}

template <class Value>
bool by_tiles(int64_t rows, const Operand<Value>& a, const Operand<Value>& b, int64_t c_stride) {
  return policy() != Policy::kBlas && tile_products().available && !(b.transposed && rows < kFewRows) &&
         std::max({a.stride, b.stride, c_stride}) <= kLargestStride;
}

// beta c, where c plays a part or nothing else will be written into it.
void prepare(int64_t rows, int64_t columns, bool terms, float beta, float* c, int64_t c_stride) {
  if (beta != 1 && (beta != 0 || !terms)) scale(rows, columns, beta, c, c_stride);
}

// a [rows, inner] as pairs are read: rows of an even number of elements, with a zero at the end of odd ones.
Operand<BFloat16> in_pairs(int64_t rows, int64_t inner, Operand<BFloat16> a) {
  if (!a.transposed && (inner % 2 == 0 || a.zero_behind) && a.stride % 2 == 0) return a;
  thread_local std::vector<BFloat16> room, pairs;
  const int64_t half = (inner + 1) / 2;
  // Rows of any number of elements lie as far apart as they did: one stride, one code.
  const bool keeps = !a.transposed && a.stride > inner && a.stride <= kDeep && a.stride % 2 == 0;
  const int64_t stride = keeps ? a.stride : 2 * half;
  BFloat16* const to = aligned(room, rows * stride);
  if (a.transposed) {
    constexpr int64_t kAtOnce = 32;  // in the first cache from the one step to the other
    BFloat16* const between = aligned(pairs, kAtOnce * rows);
    for (int64_t k = 0; k < inner; k += kAtOnce) {
      const int64_t depth = std::min(kAtOnce, inner - k);
      pack_pairs(depth, rows, a.data + k * a.stride, a.stride, between, rows);
      pack_pairs_transposed(2 * rows, (depth + 1) / 2, between, 2 * rows, to + k, half);
    }
  } else {
    for (int64_t i = 0; i < rows; ++i) {
      std::copy_n(a.data + i * a.stride, inner, to + i * stride);
      if (inner % 2 == 1) to[i * stride + inner] = BFloat16(0.0F);
    }
  }
  return {to, stride};
}

// The factor [rows, columns] in float, in `room`.
Operand<float> widened(int64_t rows, int64_t columns, Operand<BFloat16> from, std::vector<float>& room) {
  if (from.transposed) std::swap(rows, columns);
  float* const to = aligned(room, rows * columns);
  widen(rows, columns, from.data, from.stride, to, columns);
  return {to, columns, from.transposed};
}

// As multiply() above, of pairs; columns come first.
template <class Right>
void multiply_pairs(int64_t rows, int64_t columns, int64_t inner, float alpha, Operand<BFloat16> a, float beta,
                    float* c, int64_t c_stride, const Right& right) {
  mark(tile_products().unit ? unit_ran : tiles_ran);
  const bool terms = alpha != 0 && inner != 0;
  prepare(rows, columns, terms, terms ? beta / alpha : beta, c, c_stride);
  if (!terms) return;
  a = in_pairs(rows, inner, a);
  for_pieces(columns, kWide, [&](int64_t j, int64_t width) {
    for_pieces((inner + 1) / 2 * 2, kDeep, [&](int64_t k, int64_t depth) {
      const Operand<BFloat16> piece = right(k, depth, j, width);
      for_pieces(rows, kTall, [&](int64_t i, int64_t height) {
        multiply_piece(height, width, depth, part(a, i, k), piece.data, piece.stride, c + i * c_stride + j, c_stride,
                       beta != 0 || k > 0);
      });
    });
  });
  // Once the sums are there: a factor of bf16 numbers would round them again.
  if (alpha != 1) scale(rows, columns, alpha, c, c_stride);
}

void pack_panel(int64_t depth, int64_t width, const Operand<BFloat16>& b, BFloat16* to) {
  (b.transposed ? pack_pairs_transposed : pack_pairs)(depth, width, b.data, b.stride, to, panel_stride(width));
}

}  // namespace

void gemm(int64_t rows, int64_t columns, int64_t inner, float alpha, Operand<float> a, Operand<float> b, float beta,
          float* c, int64_t c_stride) {
  if (rows == 0 || columns == 0) return;
  add_executed_flops(2 * rows * columns * inner);
  if (!by_tiles(rows, a, b, c_stride)) {
    mark(blas_ran);
    return call_blas<float>(sgemm_, rows, columns, inner, alpha, a, b, beta, c, c_stride);
  }
  mark(tiles_ran);
  prepare(rows, columns, alpha != 0 && inner != 0, beta, c, c_stride);
  if (alpha != 0) multiply(rows, columns, inner, alpha, a, b, beta, c, c_stride);
}

void gemm(int64_t rows, int64_t columns, int64_t inner, double alpha, Operand<double> a, Operand<double> b, double beta,
          double* c, int64_t c_stride) {
  if (rows == 0 || columns == 0) return;
  add_executed_flops(2 * rows * columns * inner);
  call_blas<double>(dgemm_, rows, columns, inner, alpha, a, b, beta, c, c_stride);
}

void gemm(int64_t rows, int64_t columns, int64_t inner, float alpha, Operand<BFloat16> a, Operand<BFloat16> b,
          float beta, float* c, int64_t c_stride) {
  if (rows == 0 || columns == 0) return;
  if (tile_products().pairs && by_tiles(rows, a, b, c_stride)) {
    add_executed_flops(2 * rows * columns * inner);
    return gemm_by_pairs(rows, columns, inner, alpha, a, b, beta, c, c_stride);
  }
  thread_local std::vector<float> left, right;
  const Operand<float> wide_a = widened(rows, inner, a, left), wide_b = widened(inner, columns, b, right);
  gemm(rows, columns, inner, alpha, wide_a, wide_b, beta, c, c_stride);
}

void gemm_by_pairs(int64_t rows, int64_t columns, int64_t inner, float alpha, Operand<BFloat16> a, Operand<BFloat16> b,
                   float beta, float* c, int64_t c_stride) {
  thread_local std::vector<BFloat16> room;
  BFloat16* const packed = aligned(room, kWide * kDeep);
  multiply_pairs(rows, columns, inner, alpha, a, beta, c, c_stride,
                 [&](int64_t k, int64_t depth, int64_t j, int64_t width) {
                   pack_panel(std::min(depth, inner - k), width, part(b, k, j), packed);
                   return Operand<BFloat16>{packed, panel_stride(width)};
                 });
}

template <class Value>
void gemm_rounding(int64_t rows, int64_t columns, int64_t inner, Operand<Value> a, Operand<at::opmath_type<Value>> b,
                   at::opmath_type<Value> beta, at::opmath_type<Value>* c, int64_t c_stride) {
  if constexpr (!std::is_same_v<Value, BFloat16>) {
    gemm(rows, columns, inner, Value(1), a, b, beta, c, c_stride);
  } else {
    if (rows == 0 || columns == 0) return;
    thread_local std::vector<BFloat16> room;
    if (b.transposed || !tile_products().pairs || !by_tiles(rows, a, {nullptr, b.stride}, c_stride)) {
      const int64_t height = b.transposed ? columns : inner, width = b.transposed ? inner : columns;
      BFloat16* const rounded = aligned(room, height * width);
      narrow(height, width, b.data, b.stride, rounded, width);
      return gemm(rows, columns, inner, 1.0F, a, {rounded, width, b.transposed}, beta, c, c_stride);
    }
    add_executed_flops(2 * rows * columns * inner);
    BFloat16* const packed = aligned(room, kWide * kDeep);
    multiply_pairs(
        rows, columns, inner, 1, a, beta, c, c_stride, [&](int64_t k, int64_t depth, int64_t j, int64_t width) {
          const Operand<float> piece = part(b, k, j);
          pack_rounded_pairs(std::min(depth, inner - k), width, piece.data, b.stride, packed, panel_stride(width));
          return Operand<BFloat16>{packed, panel_stride(width)};
        });
  }
}

void PairedFactor::reset(int64_t inner, int64_t columns) {
  static_assert(kDepth == kDeep && kWidth == kWide, "panels are laid out for other products");
  inner_ = inner, columns_ = columns;
  panels_ = aligned(room_, depth() * panel_stride(columns) / 2);
}

bool pairs_possible(Operand<BFloat16> a, int64_t c_stride) {
  return tile_products().pairs && has_bf16_512() && by_tiles(kFewRows, a, Operand<BFloat16>{nullptr, 0}, c_stride);
}

void gemm(int64_t rows, Operand<BFloat16> a, const PairedFactor& b, float beta, float* c, int64_t c_stride) {
  if (rows == 0 || b.columns_ == 0) return;
  add_executed_flops(2 * rows * b.columns_ * b.inner_);
  const auto* const panels = reinterpret_cast<const BFloat16*>(b.panels_);
  multiply_pairs(rows, b.columns_, b.inner_, 1, a, beta, c, c_stride,
                 [&](int64_t k, int64_t depth, int64_t j, int64_t width) {
                   return Operand<BFloat16>{panels + panel_place(b.columns_, k, depth, j), panel_stride(width)};
                 });
}

template <class Value>
void PackedFactor<Value>::pack(int64_t rows, int64_t inner, int64_t columns, Number alpha, Operand<Value> b) {
  inner_ = inner, columns_ = columns, alpha_ = alpha, b_ = b, panels_ = nullptr;
  if constexpr (!std::is_same_v<Value, double>) {
    constexpr bool kPairs = std::is_same_v<Value, BFloat16>;
    if (rows < kReused || !by_tiles(rows, Operand<Value>{nullptr, 0}, b, 0) || (kPairs && !tile_products().pairs))
      return;
    const int64_t depths = kPairs ? (inner + 1) / 2 * 2 : inner;
    Value* const panels = aligned(room_, depths * panel_stride(columns));
    panels_ = panels;
    for_pieces(depths, kDeep, [&](int64_t k, int64_t depth) {
      for_pieces(columns, kWide, [&](int64_t j, int64_t width) {
        Value* const to = panels + panel_place(columns, k, depth, j);
        if constexpr (kPairs) pack_panel(std::min(depth, inner - k), width, part(b, k, j), to);
        else pack_panel(depth, width, alpha, part(b, k, j), to);
      });
    });
  }
}

template <class Value>
void PackedFactor<Value>::pack(int64_t rows, int64_t inner, int64_t columns, Number alpha,
                               Operand<Number> b) requires(!std::is_same_v<Value, Number>) {
  const int64_t height = b.transposed ? columns : inner, width = b.transposed ? inner : columns;
  rounded_.resize(static_cast<size_t>(height * width));
  narrow(height, width, b.data, b.stride, rounded_.data(), width);
  pack(rows, inner, columns, alpha, Operand<Value>{rounded_.data(), width, b.transposed});
}

template <class Value>
void gemm(int64_t rows, Operand<Value> a, const PackedFactor<Value>& b, at::opmath_type<Value> beta,
          at::opmath_type<Value>* c, int64_t c_stride) {
  const int64_t inner = b.inner_, columns = b.columns_;
  if constexpr (!std::is_same_v<Value, double>) {
    if (b.panels_ != nullptr && rows > 0 && columns > 0 && by_tiles(rows, a, b.b_, c_stride)) {
      add_executed_flops(2 * rows * columns * inner);
      const auto panel = [&](int64_t k, int64_t depth, int64_t j, int64_t width) {
        return Operand<Value>{b.panels_ + panel_place(columns, k, depth, j), panel_stride(width)};
      };
      if constexpr (std::is_same_v<Value, BFloat16>)
        return multiply_pairs(rows, columns, inner, b.alpha_, a, beta, c, c_stride, panel);
      else {
        mark(tiles_ran);
        prepare(rows, columns, b.alpha_ != 0 && inner != 0, beta, c, c_stride);
        if (b.alpha_ != 0) multiply(rows, columns, inner, a, beta, c, c_stride, panel);
        return;
      }
    }
  }
  gemm(rows, columns, inner, b.alpha_, a, b.b_, beta, c, c_stride);
}

template void gemm_rounding(int64_t, int64_t, int64_t, Operand<float>, Operand<float>, float, float*, int64_t);
template void gemm_rounding(int64_t, int64_t, int64_t, Operand<double>, Operand<double>, double, double*, int64_t);
template void gemm_rounding(int64_t, int64_t, int64_t, Operand<BFloat16>, Operand<float>, float, float*, int64_t);
template class PackedFactor<float>;
template class PackedFactor<double>;
template class PackedFactor<BFloat16>;
template void gemm(int64_t, Operand<float>, const PackedFactor<float>&, float, float*, int64_t);
template void gemm(int64_t, Operand<double>, const PackedFactor<double>&, double, double*, int64_t);
template void gemm(int64_t, Operand<BFloat16>, const PackedFactor<BFloat16>&, float, float*, int64_t);

std::string products_run() {
  std::string names;
  const auto add = [&](bool ran, const std::string& name) {
    if (ran) names += (names.empty() ? "" : "+") + name;
  };
  add(tiles_ran, tile_products().name);
  add(unit_ran, "amx-bf16");
  add(blas_ran, at::hasMKL() ? "mkl" : "blas");
  return names;
}

void reset_products() { tiles_ran = unit_ran = blas_ran = false; }

}  // namespace xformer::kernels
