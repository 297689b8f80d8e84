// Heads of attention on a device: where their rows lie, which of them a block has, and how its sums get to them.
#pragma once

#include <type_traits>

#include "kernels/device/tile.h"

namespace xformer::kernels {

// Where [b,h,n,d] lies: elements from one row, sample and head to the next; the last axis has no gaps.
struct HeadPlaces : RowPlaces {
  int64_t sample = 0, head = 0;
};

// One sample's head and 64 of its rows.
struct HeadBlock {
  int64_t b, h, first;
};

// That of a block in a grid that gives every head a block for each 64 of its rows, or each `side`.
[[nodiscard]] XFORMER_DEVICE HeadBlock head_block(int64_t heads, int64_t block, int64_t rows, int side = kTileSide) {
  const int64_t tiles = (rows + side - 1) / side;
  return {block / tiles / heads, block / tiles % heads, block % tiles * side};
}

// One sample's head of a tensor whose heads lie so.
template <class Value>
[[nodiscard]] XFORMER_DEVICE const Value* at_head(const void* x, const HeadPlaces& places, const HeadBlock& block) {
  return static_cast<const Value*>(x) + block.b * places.sample + block.h * places.head;
}

// run(a value of the heads' type, a constant of ProductKind): 16-bit heads are operands of TF32 products as they are.
template <class Types, class Run>
void with_heads(ElementType type, ProductKind product, const Run& run) {
  if (type == ElementType::kFloat && product == ProductKind::kFloat)
    return run(float(), std::integral_constant<ProductKind, ProductKind::kFloat>());
  with_element<Types>(type, [&](auto value) { run(value, std::integral_constant<ProductKind, ProductKind::kTf32>()); });
}

// One behind the last of `count` flags that is set, the same in all threads. `memory`: an int for each warp.
template <class Thread>
XFORMER_DEVICE int64_t valid_end(const Thread& thread, const bool* flags, int64_t count, int* memory) {
  if (flags == nullptr) return count;
  int last = 0;
  for (int64_t i = thread.index(); i < count; i += kTileThreads)
    if (flags[i]) last = static_cast<int>(i) + 1;
  for (int mask = 1; mask < kWarp; mask *= 2) {
    const int other = thread.shuffle_xor(last, mask);
    last = other > last ? other : last;
  }
  if (thread.index() % kWarp == 0) memory[thread.index() / kWarp] = last;
  thread.sync();
  for (int i = 0; i < kTileThreads / kWarp; ++i) last = memory[i] > last ? memory[i] : last;
  thread.sync();
  return last;
}

// The same, and no flags where all before that end are set: then the end says it all.
template <class Thread>
XFORMER_DEVICE int64_t trimmed_end(const Thread& thread, const bool*& flags, int64_t count, int* memory) {
  const int64_t end = valid_end(thread, flags, count, memory);
  if (flags == nullptr) return end;
  int gaps = 0;
  for (int64_t i = thread.index(); i < end; i += kTileThreads) gaps += flags[i] ? 0 : 1;
  gaps = lane_sum(thread, gaps, 1, kWarp);
  if (thread.index() % kWarp == 0) memory[thread.index() / kWarp] = gaps;
  thread.sync();
  gaps = 0;
  for (int i = 0; i < kTileThreads / kWarp; ++i) gaps += memory[i];
  thread.sync();
  if (gaps == 0) flags = nullptr;
  return end;
}

// A fragment's sums to rows of a contiguous [b,rows,h,width], those of a warp's 16 that there are.
template <int kTiles, class Thread, class Value>
XFORMER_DEVICE void store_fragment(const Thread& thread, const float (*sum)[4], float factor0, float factor1,
                                   Value* head, int64_t row_stride, int width, int64_t first, int64_t count) {
  const FragmentPlace place(thread);
  XFORMER_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int64_t row = first + place.row + (i >= 2 ? 8 : 0);
    if (row >= count) continue;
    XFORMER_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      const int column = j * kTileColumns + 2 * place.pair + i % 2;
      if (column < width)
        head[row * row_stride + column] = static_cast<Value>(sum[j][i] * (i >= 2 ? factor1 : factor0));
    }
  }
}

}  // namespace xformer::kernels
