#include "cuda/recording.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <vector>

#include "cuda/capture.h"

namespace xformer::cuda {

namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

// LibTorch's graph, with access to what it leaves begun when it fails.
class DeviceCapture : public Capture, public at::cuda::CUDAGraph {
 public:
  void begin(PoolId pool) override { capture_begin(pool, cudaStreamCaptureModeThreadLocal); }
  void end() override { capture_end(); }
  [[nodiscard]] bool releases_pools() const override { return capture_ended_; }

  void end_pool(Memory memory, PoolId pool) override {
    if (memory == Memory::kDevice) allocator::endAllocateToPool(capture_stream_.device_index(), pool);
    else at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool);
  }

  void release_pool(Memory memory, PoolId pool) override {
    if (memory == Memory::kDevice) allocator::releasePool(capture_stream_.device_index(), pool);
    else at::getHostAllocator(at::kCUDA)->release_pool(pool);
  }

  void stop_stream() override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(capture_stream_, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone) {
      cudaGraph_t unusable = nullptr;
      static_cast<void>(cudaStreamEndCapture(capture_stream_, &unusable));
      if (unusable != nullptr) static_cast<void>(cudaGraphDestroy(unusable));
    }
    static_cast<void>(cudaGetLastError());  // of the launches that were refused
  }

  // Otherwise every plain draw from the generator is refused from now on.
  void stop_generator() override {
    for (const auto& entry : captured_generator_states_) entry.first->capturing_ = false;
  }
};

class Graph : public Recording {
 public:
  explicit Graph(const std::function<void()>& work) {
    static SharedPool shared(at::cuda::graph_pool_handle);
    const auto stream = c10::cuda::getCurrentCUDAStream();
    TORCH_CHECK(stream != c10::cuda::getDefaultCUDAStream(), "work on the default stream cannot be captured");
    // What plain steps left unused goes back first: the graph's memory comes from a pool of its own.
    c10::cuda::device_synchronize();
    release_unused_memory();
    pool_ = shared.capture(graph_, [&] {
      work();
      kernels_ = count_kernels(stream);
    });
  }

  void replay() override { graph_.replay(); }
  [[nodiscard]] std::optional<int64_t> kernels() const override { return kernels_; }

 private:
  // Of what the stream captured so far.
  static std::optional<int64_t> count_kernels(const c10::cuda::CUDAStream& stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaGraph_t graph = nullptr;
    size_t count = 0;
    if (cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph) != cudaSuccess || graph == nullptr ||
        cudaGraphGetNodes(graph, nullptr, &count) != cudaSuccess)
      return std::nullopt;
    std::vector<cudaGraphNode_t> nodes(count);
    if (cudaGraphGetNodes(graph, nodes.data(), &count) != cudaSuccess) return std::nullopt;
    int64_t kernels = 0;
    for (const cudaGraphNode_t node : nodes) {
      cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
      if (cudaGraphNodeGetType(node, &type) != cudaSuccess) return std::nullopt;
      kernels += type == cudaGraphNodeTypeKernel ? 1 : 0;
    }
    return kernels;
  }

  std::shared_ptr<const PoolId> pool_;  // outlives the graph
  DeviceCapture graph_;
  std::optional<int64_t> kernels_;
};

}  // namespace

std::unique_ptr<Recording> record(const std::function<void()>& work) { return std::make_unique<Graph>(work); }

void release_unused_memory() {
  allocator::emptyCache();
  at::getHostAllocator(at::kCUDA)->empty_cache();
}

}  // namespace xformer::cuda
