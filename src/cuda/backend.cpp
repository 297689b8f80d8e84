// The plugin's side of tensor/cuda_backend.h, over LibTorch's CUDA libraries.
#include <ATen/Context.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <map>

#include "cuda/no_device.h"
#include "cuda/nvml.h"
#include "cuda/recording.h"
#include "tensor/cuda_backend.h"

namespace xformer::cuda {

namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

c10::DeviceIndex narrow(int index) { return static_cast<c10::DeviceIndex>(index); }

class Backend : public CudaBackend {
 public:
  [[nodiscard]] std::string no_device_reason() const override {
    DeviceQuery answer;
    const cudaError_t error = cudaGetDeviceCount(&answer.count);
    answer.error = error;
    answer.error_text = cudaGetErrorString(error);
    static_cast<void>(cudaDriverGetVersion(&answer.driver));
    static_cast<void>(cudaRuntimeGetVersion(&answer.runtime));
    static_cast<void>(cudaGetLastError());
    return cuda::no_device_reason(answer);
  }

  [[nodiscard]] int device_count() const override { return c10::cuda::device_count(); }

  void activate(int index) override {
    c10::cuda::set_device(narrow(index));
    // Fills LibTorch's allocator for the device before anything asks for its numbers.
    at::globalContext().lazyInitDevice(at::kCUDA);
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, narrow(index)));
  }

  void synchronize(int index) override {
    const c10::cuda::CUDAGuard guard(narrow(index));
    c10::cuda::device_synchronize();
  }

  void hold(int index, double seconds) override {
    int kilohertz = 0;  // at most; at fewer it takes longer
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, index));
    at::cuda::sleep(static_cast<int64_t>(1e3 * kilohertz * seconds));
  }

  [[nodiscard]] std::unique_ptr<Recording> record(const std::function<void()>& work) override {
    return cuda::record(work);
  }

  [[nodiscard]] MemoryUse memory(int index) const override {
    const auto stats = allocator::getDeviceStats(narrow(index));
    constexpr size_t kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    MemoryUse use;
    use.live_bytes = stats.allocated_bytes[kAll].current;
    use.peak_bytes = stats.allocated_bytes[kAll].peak;
    use.reserved_bytes = stats.reserved_bytes[kAll].current;
    use.system_requests = stats.num_device_alloc;
    return use;
  }

  void reset_peak(int index) override { allocator::resetPeakStats(narrow(index)); }

  [[nodiscard]] int64_t available(int index) const override {
    size_t free = 0, total = 0;
    const c10::cuda::CUDAGuard guard(narrow(index));
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    const MemoryUse own = memory(index);
    return static_cast<int64_t>(free) + own.reserved_bytes - own.live_bytes;
  }

  void release_cached(int) override { release_unused_memory(); }

  // Asked for once, before the first work: a device that failed may answer nothing more, and the record of the run
  // that it failed in names it.
  [[nodiscard]] Json facts(int index) const override {
    Json& facts = facts_[index];
    if (!facts.is_null()) return facts;
    cudaDeviceProp device{};
    int driver = 0, runtime = 0;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&device, index));
    C10_CUDA_CHECK(cudaDriverGetVersion(&driver));
    C10_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
    facts = {{"name", device.name},
             {"memory_bytes", device.totalGlobalMem},
             {"compute_capability", std::to_string(device.major) + "." + std::to_string(device.minor)},
             {"multiprocessors", device.multiProcessorCount},
             {"driver_supports_cuda", version_text(driver)},
             {"cuda_runtime", version_text(runtime)}};
    return facts;
  }

  [[nodiscard]] std::optional<double> energy(int index) override {
    char address[32] = {};
    if (cudaDeviceGetPCIBusId(address, sizeof address, index) != cudaSuccess) return std::nullopt;
    return energy_joules(address);
  }

 private:
  mutable std::map<int, Json> facts_;
};

}  // namespace

}  // namespace xformer::cuda

// The only names that others see.
extern "C" {

__attribute__((visibility("default"))) const char* xformer_cuda_build_id() {
  static const std::string kId = xformer::cuda_build_id();
  return kId.c_str();
}

__attribute__((visibility("default"))) xformer::CudaBackend* xformer_cuda_backend() {
  static xformer::cuda::Backend backend;
  return &backend;
}
}
