// Device programs (device/thread.h) as CUDA kernels. No LibTorch here.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include "kernels/device/launches.h"
#include "kernels/device/thread.h"

namespace xformer::kernels {

// The types that programs are instantiated with on a CUDA device.
struct CudaTypes {
  using Half = __half;
  using BFloat16 = __nv_bfloat16;
};

template <>
inline constexpr ElementType kElementOf<__half> = ElementType::kHalf;
template <>
inline constexpr ElementType kElementOf<__nv_bfloat16> = ElementType::kBFloat16;

class CudaThread {
 public:
  __device__ explicit CudaThread(void* shared) : shared_(shared) {}

  __device__ int index() const { return static_cast<int>(threadIdx.x); }
  __device__ int64_t block() const { return blockIdx.x; }
  __device__ int64_t blocks() const { return gridDim.x; }
  __device__ void* shared() const { return shared_; }
  __device__ void sync() const { __syncthreads(); }
  __device__ int anew(int value) const {
    asm volatile("" : "+r"(value));
    return value;
  }

  template <class Value>
  __device__ Value shuffle_xor(Value value, int mask) const {
    return __shfl_xor_sync(0xFFFFFFFFu, value, mask);
  }

  __device__ uint32_t ballot(bool mine) const { return __ballot_sync(0xFFFFFFFFu, mine); }

  __device__ uint32_t tf32(float value) const {
    uint32_t result;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(value));
    return result;
  }
  __device__ float exp(float value) const { return __expf(value); }
  __device__ float exp2(float value) const {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
    return result;
  }
  __device__ float reciprocal(float value) const {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
    return result;
  }
  __device__ void mma(float* c, const uint32_t* a, const uint32_t* b) const {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }

  __device__ uint32_t halves(float first, float second) const {
    uint32_t result;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(second), "f"(first));
    return result;
  }
  __device__ void floats(uint32_t halves, float* two) const {
    __half2 both;
    memcpy(&both, &halves, sizeof(both));
    const float2 result = __half22float2(both);
    two[0] = result.x, two[1] = result.y;
  }
  template <ElementType kType>
  __device__ void mma_half(float* c, const uint32_t* a, const uint32_t* b) const {
    if constexpr (kType == ElementType::kBFloat16)
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  // Volatile: what lies there changes between barriers, which the operands do not say.
  __device__ uint32_t place_in(const char* shared) const {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  }
  template <bool kTurned>
  __device__ void load_matrices(uint32_t place, uint32_t* into) const {
    if constexpr (kTurned)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3])
                   : "r"(place));
    else
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3])
                   : "r"(place));
  }

  // As one value, so that the compiler does not take the access apart.
  __device__ void load16(const void* from, uint32_t* words) const {
    const uint4 all = *static_cast<const uint4*>(from);
    words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
  }
  // Beside stores of four bytes, which a program has for the end of a row, it would take even one value apart.
  __device__ void store16(void* to, const uint32_t* words) const {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(words[0]),
                 "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
  }
  __device__ void put16(void* to, const uint32_t* words) const {
    *static_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
  }

  __device__ int64_t arrive(int32_t* counter) const {
    __threadfence();
    const int32_t before = atomicAdd(counter, 1);
    __threadfence();
    return before;
  }
  __device__ double arrived(const double* from) const { return __ldcg(from); }

  __device__ void copy16(float* to, const float* from, int count) const {
    const auto place = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(count * 4) : "memory");
  }
  __device__ void end_copies() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int kLater>
  __device__ void await_copies() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
  }

 private:
  void* shared_;
};

template <class Program>
__global__ void __launch_bounds__(Program::kThreads, Program::kResident) run_program(const Program program) {
  extern __shared__ uint4 shared_memory[];
  program(CudaThread(shared_memory));
}

template <class Program>
[[nodiscard]] cudaError_t launch_program(const LaunchGrid& grid, const Program& program, cudaStream_t stream) {
  constexpr int64_t kGranted = 48 * 1024;  // more is given to those that ask
  if (grid.blocks > kMostBlocks) return cudaErrorInvalidConfiguration;
  if (grid.shared_bytes > kGranted) {
    const cudaError_t error = cudaFuncSetAttribute(run_program<Program>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(grid.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  run_program<<<static_cast<unsigned>(grid.blocks), Program::kThreads, static_cast<size_t>(grid.shared_bytes),
                stream>>>(program);
  return cudaGetLastError();
}

}  // namespace xformer::kernels
