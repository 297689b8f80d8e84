// Whether work is recorded at this moment (tensor/cuda_backend.h): its launches are kept and nothing runs, so that a
// tensor made meanwhile holds nothing yet and must not be kept for later calls. Of the process, not of a thread: a
// backward pass runs in LibTorch's own.
#pragma once

#include <atomic>

namespace xformer {

class RecordingScope {
 public:
  RecordingScope() { ++open_; }
  ~RecordingScope() { --open_; }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;
  [[nodiscard]] static bool any() { return open_ > 0; }

 private:
  inline static std::atomic<int> open_{0};
};

}  // namespace xformer
