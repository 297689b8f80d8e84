// Gradients of what distances add to the scores of attention over windows, on the CPU.
#pragma once

#include <ATen/Functions.h>

#include "kernels/window_attention/cpu.h"
#include "kernels/window_attention/pass.h"

namespace xformer::kernels {

// Gradients of what distances add, a sum for every head of every sample, over the offsets that some head sees.
struct OffsetSums {
  explicit OffsetSums(const WindowPass& pass) {
    if (!pass.vectors.defined()) return;
    for (int64_t head = 0; head < pass.h; ++head) {
      back = std::max(back, pass.reach(head).back);
      ahead = std::max(ahead, pass.reach(head).ahead);
    }
    vectors = at::zeros({pass.b * pass.h, back + 1 + ahead, pass.d}, computed_options(pass.q));
    bias = at::zeros({pass.b, pass.h, back + 1 + ahead}, computed_options(pass.q));
  }

  // Of a tile's scores' gradients `steps`; to_q gains what reaches the queries by them.
  template <class Stored, class Value = Computed<Stored>>
  void add(const WindowPass& pass, const Tile& tile, const Value* steps, const Operand<Stored>& q_rows,
           const Residue<Value>& to_q, WindowScratch<Stored>& scratch) const {
    std::vector<Value>& room = scratch.by_offset;
    const Offsets offsets = offsets_of(tile, pass.reach(tile.h));
    const int64_t count = offsets.count, unit = tile.b * pass.h + tile.h;
    room.assign(static_cast<size_t>(tile.rows * count), Value(0));
    Value* const to_bias = bias.mutable_data_ptr<Value>() + unit * bias.size(2) + back;
    for (int64_t r = 0; r < tile.rows; ++r) {
      const auto [from, to] = pass.seen(tile, r);
      const int64_t offset = tile.column + from - (tile.first + r);
      const Value* const row = steps + r * pass.line(tile) + pass.g + from;
      std::copy_n(row, to - from, room.data() + r * count + (offset - offsets.first));
      add_rows(row, to - from, 1, to - from, to_bias + offset);
    }
    const auto scale = static_cast<Value>(pass.scale);
    const Stored* const factor = factor_of<Stored>(room.data(), tile.rows * count, scratch.offset_factor);
    gemm(tile.rows, pass.d, count, scale, {factor, count}, pass.vectors_from<Stored>(offsets.first, false), Value(1),
         to_q.row(tile.first), to_q.stride);
    gemm(count, pass.d, tile.rows, scale, {factor, count, true}, q_rows, Value(1),
         vectors.mutable_data_ptr<Value>() + (unit * vectors.size(1) + back + offsets.first) * pass.d, pass.d);
  }

  void finish(const WindowPass& pass, WindowAttentionGradients& result) const {
    if (!vectors.defined()) return;
    const int64_t first = pass.offset_place(-back), count = back + 1 + ahead;
    result.vectors = at::zeros(pass.vectors.sizes(), vectors.options());
    result.vectors.narrow(0, first, count).copy_(vectors.sum(0));
    result.bias = at::zeros_like(pass.bias);
    result.bias.narrow(1, first, count).copy_(bias.sum(0));
  }

  int64_t back = 0, ahead = 0;
  at::Tensor vectors, bias;  // [b h, back + 1 + ahead, d], [b, h, back + 1 + ahead]
};

}  // namespace xformer::kernels
