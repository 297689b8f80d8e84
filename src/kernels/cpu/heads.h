// [b,h,n,d] tensors as CPU kernels walk them: rows of d neighbours, everything else by strides.
#pragma once

#include <ATen/Functions.h>
#include <torch/types.h>

#include "kernels/cpu/stream.h"

namespace xformer::kernels {

template <class Value>
struct Heads {
  Value* data;
  int64_t batch_stride, head_stride, stride;

  [[nodiscard]] Value* at(int64_t b, int64_t h, int64_t row = 0) const {
    return data + b * batch_stride + h * head_stride + row * stride;
  }
};

template <class Value>
[[nodiscard]] Heads<const Value> reading(const at::Tensor& x) {
  return {x.const_data_ptr<Value>(), x.stride(0), x.stride(1), x.stride(2)};
}

template <class Value>
[[nodiscard]] Heads<Value> writing(const at::Tensor& x) {
  return {x.mutable_data_ptr<Value>(), x.stride(0), x.stride(1), x.stride(2)};
}

// Rows that BLAS can read: neighbours in memory, no row upon another. A copy where they are not.
[[nodiscard]] inline at::Tensor with_rows(const at::Tensor& x) {
  const bool fits = (x.size(3) == 1 || x.stride(3) == 1) && (x.size(2) == 1 || x.stride(2) >= x.size(3));
  return fits ? x : x.contiguous();
}

// An empty [b,h,n,d] over memory [b,n,h,d], as an output projection wants it.
[[nodiscard]] inline at::Tensor new_heads(const at::Tensor& like, int64_t length, int64_t width) {
  return at::empty({like.size(0), length, like.size(1), width}, like.options()).transpose(1, 2);
}

// Zeros in rows first .. end - 1 of all heads of a sample in new_heads(), where they lie behind each other; done when
// it is the first head's turn, for every head's rows there are zeros.
template <class Value>
void clear_heads(const Heads<Value>& x, int64_t heads, int64_t b, int64_t h, int64_t first, int64_t end,
                 int64_t width) {
  if (h == 0 && first < end)
    stream_zeros(x.at(b, 0, first), static_cast<size_t>((end - first) * heads * width) * sizeof(Value));
}

// Asks for a row that will be read soon: where other heads' rows lie between a head's, the processor foresees none.
// (Always inlined: g++ takes a function that does nothing else for one that does nothing.)
template <class Value>
[[gnu::always_inline]] inline void fetch_row(const Value* row, int64_t width) {
  constexpr int64_t kLine = 64 / sizeof(Value);
  for (int64_t i = 0; i < width; i += kLine) __builtin_prefetch(row + i, /*write=*/0, /*cache=*/2);
}
// In a loop over such rows, for one far enough behind this one that it is there when its turn comes; there need not be
// any.
template <class Value>
[[gnu::always_inline]] inline void fetch_row_ahead(const Value* row, int64_t stride, int64_t width) {
  constexpr int64_t kRowsAhead = 16;
  fetch_row(row + kRowsAhead * stride, width);
}
// For as many rows as these, behind them.
template <class Value>
[[gnu::always_inline]] inline void fetch_next_rows(const Value* rows, int64_t stride, int64_t count, int64_t width) {
  for (int64_t row = count; row < 2 * count; ++row) fetch_row(rows + row * stride, width);
}

}  // namespace xformer::kernels
