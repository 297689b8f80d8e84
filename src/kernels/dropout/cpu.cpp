// Dropout on the CPU: Philox and the selection in one pass over blocks that stay in the cache.
#include "kernels/dropout/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/vectorised.h"
#include "kernels/dropout/numbers.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kChunkElements = 4096;  // their draws (8 KiB) stay in the first-level cache
constexpr int64_t kGrainChunks = 4;       // fewer are not worth another thread

// 16-bit draws -> y = x or 0, by vectors as they are written here: left to itself, g++ makes a branch of the selection,
// which is guessed wrong for every element that is dropped. One function for each type, because only plain functions
// can be versioned.
template <class Bits, class Value>
[[gnu::always_inline]] inline void apply_draws(const Value* x, const uint16_t* draws, int64_t count, uint32_t threshold,
                                               Value* y) {
  using Drawn = Vector<uint16_t, kSumLanes>::Lanes;
  using Wide = typename Vector<Bits, kSumLanes>::Lanes;
  const auto scale = static_cast<Value>(dropout_scale(threshold));
  const auto least = static_cast<Bits>(threshold);
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    SumLanes<Value> numbers;
    Drawn drawn;
    load(x + i, numbers);
    load(draws + i, drawn);
    const SumLanes<Value> scaled = numbers * scale;
    store<SumLanes<Value>>(__builtin_convertvector(drawn, Wide) < least ? SumLanes<Value>{} : scaled, y + i);
  }
  for (; i < count; ++i) y[i] = draws[i] < threshold ? Value(0) : x[i] * scale;
}

XFORMER_VECTORISED
void apply(const float* x, const uint16_t* draws, int64_t count, uint32_t threshold, float* y) {
  apply_draws<int32_t>(x, draws, count, threshold, y);
}

XFORMER_VECTORISED
void apply(const double* x, const uint16_t* draws, int64_t count, uint32_t threshold, double* y) {
  apply_draws<int64_t>(x, draws, count, threshold, y);
}

void apply(const at::BFloat16* x, const uint16_t* draws, int64_t count, uint32_t threshold, at::BFloat16* y) {
  alignas(64) float wide[kChunkElements];
  widen(1, count, x, count, wide, count);
  apply(wide, draws, count, threshold, wide);
  narrow(1, count, wide, count, y, count);
}

// Rare on a CPU and left plain.
void apply(const at::Half* x, const uint16_t* draws, int64_t count, uint32_t threshold, at::Half* y) {
  const auto scale = static_cast<float>(dropout_scale(threshold));
  for (int64_t i = 0; i < count; ++i)
    y[i] = draws[i] < threshold ? at::Half(0) : static_cast<at::Half>(static_cast<float>(x[i]) * scale);
}

}  // namespace

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
