// Rows as the CPU's passes of attention over windows walk them, and what a worker computes in.
#pragma once

#include <vector>

#include "kernels/attention/weight_rows.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/stored.h"

namespace xformer::kernels {

// Rows of a residue: [b,h,n,d] by steps of the dilation.
template <class Value>
struct Residue {
  Value* data;
  int64_t stride;
  [[nodiscard]] Value* row(int64_t i) const { return data + i * stride; }
};

// The extra keys or values of one tile.
template <class Value>
struct ExtraRows {
  Value* data = nullptr;
  int64_t stride = 0;
};

// As BLAS reads them: neighbours in memory, no row upon another.
[[nodiscard]] inline at::Tensor blas_rows(const at::Tensor& x) {
  if (!x.defined()) return x;
  const bool fits = (x.size(-1) <= 1 || x.stride(-1) == 1) && (x.size(-2) <= 1 || x.stride(-2) >= x.size(-1));
  return fits ? x : x.contiguous();
}

// Rows that the next block reads of one tensor. They are asked for row by row between other work: processors do not
// look ahead along rows that lie far apart, and forget most of what is asked for at once.
template <class Value>
struct NextRows {
  const Value* data;
  int64_t stride, count, width;
  [[gnu::always_inline]] void prefetch(int64_t row) const {
    if (row < count) fetch_row(data + row * stride, width);
  }
};

// What a worker computes in.
template <class Stored>
struct WindowScratch {
  using Value = Computed<Stored>;
  std::vector<NextRows<Stored>> next;  // empty behind the last block
  std::vector<Value> scores, gradient;
  std::vector<Stored> factor, slope_factor;  // the same as products take them
  std::vector<Value> deltas;                 // of a tile's rows, and what their exponents are shifted by
  std::vector<RowSpan> spans;                // likewise
  std::vector<Value> by_offset;              // [rows, offsets] of a tile
  std::vector<Stored> offset_factor;
  std::vector<Value> out, rows, slopes;               // a tile's
  std::vector<Value> dq, dk, dv, extra_dk, extra_dv;  // a head's
  std::vector<uint16_t> draws, row_draws;
  std::vector<char> open;
  std::vector<Value> gains;              // of a tile's keys, as a line
  std::vector<Stored> extra_k, extra_v;  // of one block, where every block has its own
  std::vector<Value> extra_sums;         // likewise
};

}  // namespace xformer::kernels
