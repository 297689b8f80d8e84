// The life of a capture, apart from CUDA: which memory pool it takes, and how one that failed is taken back. What
// begins and ends stands behind an interface, so that a test runs these lines over LibTorch's own allocator without a
// GPU.
#pragma once

#include <c10/core/Allocator.h>

#include <functional>
#include <memory>

namespace xformer::cuda {

using PoolId = c10::MempoolId_t;
// LibTorch's two caching allocators; both take part in a capture.
enum class Memory { kDevice, kHost };

class Capture {
 public:
  virtual ~Capture() = default;
  // What at::cuda::CUDAGraph does. `begin` begins four things in this order: LibTorch's generator captures, the
  // device's pool takes allocations, the host's does, the stream captures. `end` ends stream, device's pool, host's
  // pool and generator, then makes the graph. Either may throw between any two of these.
  virtual void begin(PoolId pool) = 0;
  virtual void end() = 0;
  // `end` came far enough for the destructor to release the pools.
  [[nodiscard]] virtual bool releases_pools() const = 0;

  // These take one thing back each. The first two throw where the pool is in no capture or unknown.
  virtual void end_pool(Memory memory, PoolId pool) = 0;
  virtual void release_pool(Memory memory, PoolId pool) = 0;
  virtual void stop_stream() = 0;
  virtual void stop_generator() = 0;
};

// The pool that captures share as long as one of them lives. A pool that nobody uses any more must not be used again:
// LibTorch's allocators have marked it for removal.
class SharedPool {
 public:
  explicit SharedPool(std::function<PoolId()> fresh) : fresh_(std::move(fresh)) {}

  // Captures `work`. The pool is to be held until the capture is destroyed. When anything throws, all that was begun is
  // ended, the pool released and not used for later captures, and the first error thrown on.
  [[nodiscard]] std::shared_ptr<const PoolId> capture(Capture& capture, const std::function<void()>& work);

 private:
  std::function<PoolId()> fresh_;
  std::weak_ptr<const PoolId> current_;
};

}  // namespace xformer::cuda
