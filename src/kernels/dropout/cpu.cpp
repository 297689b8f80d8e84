// Dropout on the CPU: Philox and the selection in one pass over blocks that stay in the cache.
#include "kernels/dropout/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/error.h"
#include "kernels/cpu/vectorised.h"
#include "kernels/dropout/numbers.h"

namespace xformer::kernels {

namespace {

// Philox blocks side by side. g++ unrolls shorter loops before it vectorises them, which costs a factor of
// five.
constexpr int kLanes = 32;
constexpr int64_t kChunkElements = 4096;  // their draws (8 KiB) stay in the first-level cache
constexpr int64_t kGrainChunks = 4;       // fewer are not worth another thread

// 16-bit draws -> y = x or 0. One loop for each type, because only plain functions can be versioned.
template <class Value>
[[gnu::always_inline]] inline void apply_draws(const Value* x, const uint16_t* draws, int64_t count, uint32_t threshold,
                                               Value* y) {
  using Math = at::opmath_type<Value>;
  const Math scale = static_cast<Math>(dropout_scale(threshold));
  for (int64_t i = 0; i < count; ++i) {
    const Value scaled = static_cast<Value>(static_cast<Math>(x[i]) * scale);
    y[i] = draws[i] < threshold ? Value(0) : scaled;
  }
}

XFORMER_VECTORISED
void apply(const float* x, const uint16_t* draws, int64_t count, uint32_t threshold, float* y) {
  apply_draws(x, draws, count, threshold, y);
}

XFORMER_VECTORISED
void apply(const double* x, const uint16_t* draws, int64_t count, uint32_t threshold, double* y) {
  apply_draws(x, draws, count, threshold, y);
}

// By bits, because LibTorch's rounding has a branch that is not vectorised: to the nearest, ties to even, NaN
// stays NaN.
XFORMER_VECTORISED
void apply(const at::BFloat16* x, const uint16_t* draws, int64_t count, uint32_t threshold, at::BFloat16* y) {
  const auto scale = static_cast<float>(dropout_scale(threshold));
  const auto* in = reinterpret_cast<const uint16_t*>(x);
  auto* out = reinterpret_cast<uint16_t*>(y);
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(std::bit_cast<float>(uint32_t{in[i]} << 16) * scale);
    const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t value = (bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded;
    out[i] = static_cast<uint16_t>(draws[i] < threshold ? 0u : value);
  }
}

// Rare on a CPU and left plain.
void apply(const at::Half* x, const uint16_t* draws, int64_t count, uint32_t threshold, at::Half* y) {
  apply_draws(x, draws, count, threshold, y);
}

}  // namespace

XFORMER_VECTORISED
void draw_blocks(uint64_t key, uint64_t counter_high, uint64_t first_block, int64_t blocks, uint16_t* draws) {
  for (int64_t start = 0; start < blocks; start += kLanes) {
    // Word-major: c0[i] .. c3[i] are the four words of block start + i.
    uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t block = first_block + static_cast<uint64_t>(start + i);
      c0[i] = static_cast<uint32_t>(block);
      c1[i] = static_cast<uint32_t>(block >> 32);
      c2[i] = static_cast<uint32_t>(counter_high);
      c3[i] = static_cast<uint32_t>(counter_high >> 32);
    }
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      // High and low halves of the products in loops of their own: that is the form g++ 12 vectorises.
      uint32_t high0[kLanes], low0[kLanes], high1[kLanes], low1[kLanes];
      for (int i = 0; i < kLanes; ++i) high0[i] = static_cast<uint32_t>((uint64_t{c0[i]} * 0xD2511F53u) >> 32);
      for (int i = 0; i < kLanes; ++i) low0[i] = c0[i] * 0xD2511F53u;
      for (int i = 0; i < kLanes; ++i) high1[i] = static_cast<uint32_t>((uint64_t{c2[i]} * 0xCD9E8D57u) >> 32);
      for (int i = 0; i < kLanes; ++i) low1[i] = c2[i] * 0xCD9E8D57u;
      for (int i = 0; i < kLanes; ++i) c0[i] = high1[i] ^ c1[i] ^ k0;
      for (int i = 0; i < kLanes; ++i) c1[i] = low1[i];
      for (int i = 0; i < kLanes; ++i) c2[i] = high0[i] ^ c3[i] ^ k1;
      for (int i = 0; i < kLanes; ++i) c3[i] = low0[i];
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    // Block-major; the two halves of a word are its two draws, the lower first.
    uint16_t ordered[kLanes * kElementsPerBlock];
    uint32_t words[4 * kLanes];
    for (int i = 0; i < kLanes; ++i) {
      words[4 * i] = c0[i];
      words[4 * i + 1] = c1[i];
      words[4 * i + 2] = c2[i];
      words[4 * i + 3] = c3[i];
    }
    for (int i = 0; i < 4 * kLanes; ++i) {
      ordered[2 * i] = static_cast<uint16_t>(words[i]);
      ordered[2 * i + 1] = static_cast<uint16_t>(words[i] >> 16);
    }
    const int64_t wanted = std::min<int64_t>(kLanes, blocks - start) * kElementsPerBlock;
    std::memcpy(draws + start * kElementsPerBlock, ordered, static_cast<size_t>(wanted) * sizeof(uint16_t));
  }
}

at::Tensor dropout_cpu(const at::Tensor& x, double p, const at::Tensor& state, int64_t site) {
  XF_ASSERT(state.device().is_cpu() && state.scalar_type() == at::kLong && state.numel() == 3 && state.is_contiguous(),
            "dropout's state is not int64 [3] in host memory");
  const uint32_t threshold = dropout_threshold(p);
  const at::Tensor source = x.contiguous();
  at::Tensor result = at::empty_like(source);
  const int64_t elements = source.numel();
  if (elements == 0) return result;

  const int64_t* numbers = state.const_data_ptr<int64_t>();
  const auto key = static_cast<uint64_t>(numbers[0]);
  const uint64_t counter_high = dropout_counter_high(numbers[1], site);
  const int64_t offset = numbers[2] * (elements / source.size(0));  // the number of x's first element

  // Chunks start at multiples of kChunkElements in the numbering, so every chunk but the first starts at a
  // block.
  const int64_t first_chunk = offset / kChunkElements, end = offset + elements;
  const int64_t chunks = (end + kChunkElements - 1) / kChunkElements - first_chunk;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, source.scalar_type(), "dropout", [&] {
    const scalar_t* in = source.const_data_ptr<scalar_t>();
    scalar_t* out = result.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, chunks, kGrainChunks, [&](int64_t from, int64_t to) {
      alignas(64) uint16_t draws[kChunkElements];
      for (int64_t chunk = first_chunk + from; chunk < first_chunk + to; ++chunk) {
        const int64_t begin = std::max(chunk * kChunkElements, offset);
        const int64_t count = std::min((chunk + 1) * kChunkElements, end) - begin;
        const int64_t block = begin / kElementsPerBlock, skip = begin % kElementsPerBlock;
        const int64_t blocks = (skip + count + kElementsPerBlock - 1) / kElementsPerBlock;
        draw_blocks(key, counter_high, static_cast<uint64_t>(block), blocks, draws);
        apply(in + (begin - offset), draws + skip, count, threshold, out + (begin - offset));
      }
    });
  });
  return result;
}

}  // namespace xformer::kernels
