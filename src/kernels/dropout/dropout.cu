// Dropout on a CUDA device: one thread for each Philox block of eight elements. No LibTorch here.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/dropout/cuda.h"
#include "kernels/dropout/philox_block.h"

namespace xformer::kernels {

namespace {

constexpr int kThreads = 256;

// Eight neighbours that are read with the widest accesses.
template <class Value>
struct alignas(sizeof(Value) * kElementsPerBlock < 16 ? sizeof(Value) * kElementsPerBlock : 16) Pack {
  Value values[kElementsPerBlock];
};

// By an instruction of sixteen bytes: the compiler takes the assignment of a pack apart into stores of four.
template <class Value>
__device__ void store(const Pack<Value>& pack, Value* to) {
  constexpr int kWords = sizeof(pack) / 4;
  uint32_t words[kWords];
  if constexpr (sizeof(Value) == 2) {
    for (int i = 0; i < kWords; ++i) {
      uint16_t pair[2];
      memcpy(pair, pack.values + 2 * i, sizeof(pair));
      words[i] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
    }
  } else {
    memcpy(words, pack.values, sizeof(words));
  }
  for (int i = 0; i < kWords; i += 4)
    asm("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(reinterpret_cast<uint4*>(to) + i / 4), "r"(words[i]),
        "r"(words[i + 1]), "r"(words[i + 2]), "r"(words[i + 3])
        : "memory");
}

template <class Value, class Math>
__global__ void drop(const Value* x, Value* y, int64_t elements, int64_t row_elements, uint32_t threshold,
                     const int64_t* state, int64_t site) {
  const auto key = static_cast<uint64_t>(state[0]);
  const uint64_t high = dropout_counter_high(state[1], site);
  const int64_t offset = state[2] * row_elements;  // of the first element, in the numbering of the whole batch
  const int64_t first_block = offset / kElementsPerBlock;
  const int64_t block = first_block + static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t start = block * kElementsPerBlock - offset;  // of the block, in the tensor
  if (start >= elements) return;
  const bool aligned = offset % kElementsPerBlock == 0;
  if (aligned && start + kElementsPerBlock <= elements) {
    Pack<Value> in = *reinterpret_cast<const Pack<Value>*>(x + start), out;
    drop_block<Math>(key, high, static_cast<uint64_t>(block), 0, kElementsPerBlock, threshold, in.values, out.values);
    store(out, y + start);
  } else {
    const int begin = start < 0 ? static_cast<int>(-start) : 0;
    const int64_t left = elements - start;
    const int end = left < kElementsPerBlock ? static_cast<int>(left) : static_cast<int>(kElementsPerBlock);
    drop_block<Math>(key, high, static_cast<uint64_t>(block), begin, end, threshold, x + start, y + start);
  }
}

template <class Value, class Math>
cudaError_t launch(const DropoutLaunch& call) {
  // One block more than the elements fill, for an offset within a block.
  const int64_t blocks = call.elements / kElementsPerBlock + 2;
  drop<Value, Math><<<static_cast<unsigned>((blocks + kThreads - 1) / kThreads), kThreads, 0, call.stream>>>(
      static_cast<const Value*>(call.x), static_cast<Value*>(call.y), call.elements, call.row_elements, call.threshold,
      call.state, call.site);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_dropout(const DropoutLaunch& call) {
  switch (call.type) {
    case DropoutType::kFloat:
      return launch<float, float>(call);
    case DropoutType::kDouble:
      return launch<double, double>(call);
    case DropoutType::kHalf:
      return launch<__half, float>(call);
    case DropoutType::kBFloat16:
      return launch<__nv_bfloat16, float>(call);
  }
  return cudaErrorInvalidValue;
}

}  // namespace xformer::kernels
