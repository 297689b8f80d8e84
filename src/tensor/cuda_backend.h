// What the program asks of CUDA, and the door to it: libxformer_cuda.so, opened at run time only when a CUDA device is
// wanted, so that the program itself needs no CUDA library. Tensors on CUDA devices, the dispatch of operators to them
// and pinned memory come with LibTorch's CUDA libraries, which the plugin brings along.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/json.h"
#include "tensor/memory.h"

namespace xformer {

// Work whose launches were recorded once, in the places in memory where its tensors were then.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;
  // Kernels that one replay launches; none: nobody counted them.
  [[nodiscard]] virtual std::optional<int64_t> kernels() const { return std::nullopt; }
};

class CudaBackend {
 public:
  virtual ~CudaBackend() = default;
  // Why there is no device, or "" when there is one.
  [[nodiscard]] virtual std::string no_device_reason() const = 0;
  [[nodiscard]] virtual int device_count() const = 0;
  // Makes the device the calling thread's, with a stream of its own on which everything from then on runs: what a
  // stream is captured from must not be the default one.
  virtual void activate(int index) = 0;
  virtual void synchronize(int index) = 0;
  // The current stream does nothing for about so long, and then what it was asked for meanwhile.
  virtual void hold(int index, double seconds) = 0;

  // Runs `work` without executing its launches and keeps them (a CUDA graph). Recordings share a memory pool: none may
  // read what another left in memory that it allocated itself. Throws c10::Error when the work cannot be recorded
  // (it reads a value back, say); nothing has run then, and the device is as before.
  [[nodiscard]] virtual std::unique_ptr<Recording> record(const std::function<void()>& work) = 0;

  // Of LibTorch's caching allocator.
  [[nodiscard]] virtual MemoryUse memory(int index) const = 0;
  virtual void reset_peak(int index) = 0;
  // Bytes that nobody has taken, with what the caching allocator keeps unused.
  [[nodiscard]] virtual int64_t available(int index) const = 0;
  virtual void release_cached(int index) = 0;

  // Name, memory, compute capability, multiprocessors, driver and runtime versions.
  [[nodiscard]] virtual Json facts(int index) const = 0;
  // Joules since the driver was loaded, by NVML; nullopt where that or its counter is missing.
  [[nodiscard]] virtual std::optional<double> energy(int index) = 0;
};

// The plugin, loaded at the first call. ResourceError that says what is missing and how to get it: the plugin,
// LibTorch's CUDA libraries, or the right build of it.
[[nodiscard]] CudaBackend& cuda_backend();

// What the program and the plugin must agree on: version, commit, LibTorch.
[[nodiscard]] std::string cuda_build_id();

}  // namespace xformer
