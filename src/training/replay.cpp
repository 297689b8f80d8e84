#include "training/replay.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/names.h"
#include "kernels/policy.h"
#include "tensor/recording_scope.h"

namespace xformer::training {

namespace {

// Of the CUDA runtime's error numbers, those after which it refuses all that a process asks for: memory and links
// beyond correction; addresses, time, assertions and instructions of a kernel; an unknown one.
bool ends_all_work(int32_t code) {
  constexpr std::array kCodes{214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719, 999};
  return std::find(kCodes.begin(), kCodes.end(), code) != kCodes.end();
}

}  // namespace

void check_cuda_graph_word(const std::string& word) {
  XF_CHECK(word == "auto" || word == "on" || word == "off", UserError,
           "--cuda-graph: expected auto, on or off, got '{}'", word);
}

Recorder make_recorder(const std::string& word, const at::Device& device, std::function<void(const std::string&)> say) {
  check_cuda_graph_word(word);
  XF_CHECK(word != "on" || device.is_cuda(), UserError,
           "--cuda-graph on: graphs are captured on CUDA devices, not on {}", device.str());
  Recorder recorder;
  const bool compares = kernels::policy() == kernels::Policy::kCheck;  // which reads values back
  XF_CHECK(word != "on" || !compares, UserError,
           "--cuda-graph on: --kernels check compares on the host what a captured step would keep on the device");
  if (word == "off" || compares || !device.is_cuda()) return recorder;
  recorder.record = [](const std::function<void()>& work) { return cuda_backend().record(work); };
  recorder.required = word == "on";
  recorder.say = std::move(say);
  return recorder;
}

Recorder host_recorder() {
  struct Call : Recording {
    explicit Call(std::function<void()> call) : call_(std::move(call)) {}
    void replay() override { call_(); }
    std::function<void()> call_;
  };
  Recorder recorder;
  recorder.record = [](const std::function<void()>& work) { return std::make_unique<Call>(work); };
  return recorder;
}

Replay::Replay(std::string name, std::function<void()> work, Recorder recorder)
    : name_(std::move(name)), work_(std::move(work)), recorder_(std::move(recorder)) {}

bool Replay::is_due() const { return !recording_ && recorder_.record && (plain_runs_ >= kPlainRuns || at_once()); }

void Replay::record() {
  if (!is_due()) return;
  try {
    const RecordingScope scope;
    recording_ = recorder_.record(work_);
  } catch (const c10::OutOfMemoryError&) {
    throw;  // plain steps would hardly fit either, and the remedy is another
  } catch (const c10::Error& error) {
    const auto* const of_device = dynamic_cast<const c10::AcceleratorError*>(&error);
    if (of_device != nullptr && ends_all_work(of_device->get_error_code())) throw;  // no plain step would run either
    if (at_once()) return;  // it needs something that its first plain run makes
    const std::string reason = error.what_without_backtrace();
    XF_CHECK(!recorder_.required, ResourceError, "--cuda-graph on: the {} cannot be captured: {}", name_, reason);
    recorder_.say("the " + name_ + " is not captured in a CUDA graph and runs plainly: " + reason);
    recorder_.record = nullptr;
  }
}

void Replay::run() {
  record();
  if (recording_) return recording_->replay();
  work_();
  if (++plain_runs_ == kPlainRuns && recorder_.prepared) *recorder_.prepared = true;
}

}  // namespace xformer::training
