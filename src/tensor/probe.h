// Named intermediate tensors of a forward pass, for whoever asks. Modules always report them; while nobody on this
// thread records, a report is one branch.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tensor/tensor_file.h"

namespace xformer {

// Hears what its thread reports during its life; of two, the inner one does. Names are full: "layer0.mixer.weights".
class ProbeRecorder {
 public:
  // Keeps the tensors whose names `wanted` accepts, with their gradients where they will have one.
  explicit ProbeRecorder(std::function<bool(const std::string& name)> wanted);
  ~ProbeRecorder();
  ProbeRecorder(const ProbeRecorder&) = delete;
  ProbeRecorder& operator=(const ProbeRecorder&) = delete;

  [[nodiscard]] const NamedTensors& kept() const { return kept_; }
  [[nodiscard]] const std::vector<std::string>& seen() const { return seen_; }  // every name, in order of report

  void report(const char* name, const at::Tensor& tensor);

 private:
  friend class ProbeScope;
  std::function<bool(const std::string&)> wanted_;
  std::string prefix_;  // of the scopes that are open: "layer0.mixer."
  NamedTensors kept_;
  std::vector<std::string> seen_;
  ProbeRecorder* outer_;
};

// This thread's recorder, or nullptr.
extern constinit thread_local ProbeRecorder* probe_recorder;

inline void probe(const char* name, const at::Tensor& tensor) {
  if (probe_recorder != nullptr) probe_recorder->report(name, tensor);
}

// During its life names are reported below `name`, with a number behind it unless that is negative: "layer0.".
class ProbeScope {
 public:
  explicit ProbeScope(const char* name, int64_t number = -1) {
    if (probe_recorder != nullptr) open(name, number);
  }
  ~ProbeScope() {
    if (recorder_ != nullptr) recorder_->prefix_.resize(outer_size_);
  }
  ProbeScope(const ProbeScope&) = delete;
  ProbeScope& operator=(const ProbeScope&) = delete;

 private:
  void open(const char* name, int64_t number);
  ProbeRecorder* recorder_ = nullptr;
  size_t outer_size_ = 0;
};

// The result of `work`, reported as `name`; what `work` reports lies below that name.
template <class Work>
at::Tensor probed(const std::string& name, const Work& work) {
  at::Tensor result;
  {
    const ProbeScope scope(name.c_str());
    result = work();
  }
  probe(name.c_str(), result);
  return result;
}

}  // namespace xformer
