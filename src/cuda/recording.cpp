#include "cuda/recording.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <vector>

namespace xformer::cuda {

namespace {

// One pool for all: a recording's own tensors are read only until the next one is replayed.
c10::MempoolId_t shared_pool() {
  static const c10::MempoolId_t kPool = at::cuda::graph_pool_handle();
  return kPool;
}

class Graph : public Recording {
 public:
  explicit Graph(const std::function<void()>& work) {
    const auto stream = c10::cuda::getCurrentCUDAStream();
    TORCH_CHECK(stream != c10::cuda::getDefaultCUDAStream(), "work on the default stream cannot be captured");
    // What plain steps left unused goes back first: the graph's memory comes from a pool of its own.
    c10::cuda::device_synchronize();
    c10::cuda::CUDACachingAllocator::emptyCache();
    graph_.capture_begin(shared_pool(), cudaStreamCaptureModeThreadLocal);
    try {
      work();
      kernels_ = count_kernels(stream);
      graph_.capture_end();
    } catch (...) {
      abandon(stream);
      throw;
    }
  }

  void replay() override { graph_.replay(); }
  [[nodiscard]] std::optional<int64_t> kernels() const override { return kernels_; }

 private:
  // Ends a capture that failed, so that stream and allocator are as before.
  static void abandon(const c10::cuda::CUDAStream& stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone) {
      cudaGraph_t unusable = nullptr;
      static_cast<void>(cudaStreamEndCapture(stream, &unusable));
      if (unusable != nullptr) static_cast<void>(cudaGraphDestroy(unusable));
    }
    static_cast<void>(cudaGetLastError());  // of the launches that were refused
    c10::cuda::CUDACachingAllocator::endAllocateToPool(stream.device_index(), shared_pool());
  }

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

  at::cuda::CUDAGraph graph_;
  std::optional<int64_t> kernels_;
};

}  // namespace

std::unique_ptr<Recording> record(const std::function<void()>& work) { return std::make_unique<Graph>(work); }

}  // namespace xformer::cuda
