// Sums of tile^T x over blocks of rows: what gradients of keys and values, and of weights, are.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/stored.h"

namespace xformer::kernels {

// Into `into` [count, width]: scale times the sums of tile^T x over tiles [rows, columns] as they were computed and x
// [rows, width] as it is stored. Where tiles are rounded, a tile is laid out once as the second factor, x^T being the
// first, and the sums lie turned over in `room` until they are finished: rows of `line` numbers, or of count where that
// is more. Code that multiplies has this as a constant, so a count of a sample's own wants a line of all samples'.
template <class Stored>
class TileSums {
 public:
  using Value = Computed<Stored>;
  TileSums(const TileRows<Value>& into, int64_t count, int64_t width, Value scale, std::vector<Value>& room,
           int64_t line = 0)
      : into_(into), count_(count), line_(std::max(count, line)), width_(width), scale_(scale) {
    if constexpr (kConverts<Stored>) turned_ = grown(room, width * line_);
  }

  // To zero; without it the first tile of every column replaces what was there.
  void clear() const {
    if constexpr (kConverts<Stored>) std::fill_n(turned_, width_ * line_, Value(0));
    else
      for (int64_t i = 0; i < count_; ++i) std::fill_n(into_.data + i * into_.stride, width_, Value(0));
  }
  // Rows first .. first + columns - 1 of the sums gain those of a tile whose rows begin `stride` numbers apart, or
  // become them.
  void add(int64_t first, int64_t columns, int64_t rows, const Value* tile, int64_t stride, Operand<Stored> x,
           bool replaces) const {
    const Value more = replaces ? Value(0) : Value(1);
    if constexpr (kConverts<Stored>) {
      x.transposed = true;
      gemm_rounding(width_, columns, rows, x, {tile, stride}, more, turned_ + first, line_);
    } else {
      gemm(columns, width_, rows, scale_, {tile, stride, true}, x, more, into_.data + first * into_.stride,
           into_.stride);
    }
  }
  // The same of a tile that is laid out already.
  void add(int64_t first, const PairedFactor& tile, Operand<Stored> x, bool replaces) const {
    x.transposed = true;
    gemm(width_, x, tile, replaces ? Value(0) : Value(1), turned_ + first, line_);
  }
  // Whether tiles may be: x's rows begin so far apart.
  [[nodiscard]] bool takes_pairs(int64_t stride) const {
    if constexpr (kConverts<Stored>) return pairs_possible({nullptr, stride, true}, line_);
    else return false;
  }
  void finish() const {
    if constexpr (kConverts<Stored>) pack_transposed(count_, width_, scale_, turned_, line_, into_.data, into_.stride);
  }
  // Rows first .. first + count - 1 of the finished sums without finishing all, side by side: in `room` or where they
  // are, where `into` has no gaps.
  const Value* rows(int64_t first, int64_t count, std::vector<Value>& room) const {
    if constexpr (!kConverts<Stored>) return into_.data + first * into_.stride;
    Value* const to = grown(room, count * width_);
    pack_transposed(count, width_, scale_, turned_ + first, line_, to, width_);
    return to;
  }

 private:
  TileRows<Value> into_;
  int64_t count_, line_, width_;
  Value scale_;
  Value* turned_ = nullptr;
};

}  // namespace xformer::kernels
