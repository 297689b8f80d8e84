// The CPU's side of dropout: draws for whole runs of elements, to be used inside any kernel that drops.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace xformer::kernels {

// draws[8 * i ..] of Philox block first_block + i, for i < blocks: 16 bits an element.
void draw_blocks(uint64_t key, uint64_t counter_high, uint64_t first_block, int64_t blocks, uint16_t* draws);
// The same of kSomeBlocks blocks, wherever they are.
inline constexpr int64_t kSomeBlocks = 16;
void draw_some_blocks(uint64_t key, uint64_t counter_high, const uint64_t* blocks, uint16_t* draws);
// By each instruction set that this processor has, the widest first, which are those.
using DrawBlocks = void(uint64_t key, uint64_t counter_high, uint64_t first_block, int64_t blocks, uint16_t* draws);
using DrawSomeBlocks = void(uint64_t key, uint64_t counter_high, const uint64_t* blocks, uint16_t* draws);
struct DrawLoops {
  DrawBlocks* blocks;
  DrawSomeBlocks* some;
};
[[nodiscard]] std::vector<DrawLoops> ways_to_draw();

// What draws mean, a bit an element, set where it is kept, by AVX-512 (has_512()); `count` is a multiple of 8. And
// back: the least or the largest draw, as the bit says.
inline constexpr int64_t kBitsPerByte = 8;
void kept_bits_by_512(const uint16_t* draws, int64_t count, uint32_t threshold, uint8_t* kept);
void draws_of_bits_by_512(const uint8_t* kept, int64_t count, uint16_t* draws);

// The operator's kernel. x of any strides, state [3] in host memory; the result is contiguous.
[[nodiscard]] at::Tensor dropout_cpu(const at::Tensor& x, double p, const at::Tensor& state, int64_t site);

}  // namespace xformer::kernels
