#include "tensor/probe.h"

#include <algorithm>

#include "core/error.h"

namespace xformer {

constinit thread_local ProbeRecorder* probe_recorder = nullptr;

ProbeRecorder::ProbeRecorder(std::function<bool(const std::string&)> wanted)
    : wanted_(std::move(wanted)), outer_(probe_recorder) {
  probe_recorder = this;
}

ProbeRecorder::~ProbeRecorder() { probe_recorder = outer_; }

void ProbeRecorder::report(const char* name, const at::Tensor& tensor) {
  const std::string full = prefix_ + name;
  XF_ASSERT(std::find(seen_.begin(), seen_.end(), full) == seen_.end(), "the tensor {} is reported twice", full);
  seen_.push_back(full);
  if (!wanted_(full)) return;
  if (tensor.requires_grad() && !tensor.is_leaf()) tensor.retain_grad();
  kept_.emplace_back(full, tensor);
}

void ProbeScope::open(const char* name, int64_t number) {
  recorder_ = probe_recorder;
  outer_size_ = recorder_->prefix_.size();
  recorder_->prefix_ += name;
  if (number >= 0) recorder_->prefix_ += std::to_string(number);
  recorder_->prefix_ += '.';
}

}  // namespace xformer
