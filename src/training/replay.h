// Work that is the same at every step but for what stands in its tensors: run plainly at first, then recorded once and
// replayed (a CUDA graph), or run plainly for ever where nothing records.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tensor/cuda_backend.h"

namespace xformer::training {

// How work is recorded on a device, and what happens when it cannot be.
struct Recorder {
  std::function<std::unique_ptr<Recording>(const std::function<void()>& work)> record;  // none: never recorded
  bool required = false;  // a failure is an error, not a reason to go on plainly
  // Shared by all work of one model (its steps and evaluations of every length): whether some of it has had its plain
  // runs. What comes new is then recorded at once where it can be: recordings share memory, a plain run beside them
  // would need its own. None: all work runs plainly at first.
  std::shared_ptr<bool> prepared;
  std::function<void(const std::string& line)> say = [](const std::string&) {};  // hears the reason
};

// The word of --cuda-graph, "auto", "on" or "off", for a device. UserError for another word, or for "on" without CUDA
// or under --kernels check, where nothing is recorded.
[[nodiscard]] Recorder make_recorder(const std::string& word, const at::Device& device,
                                     std::function<void(const std::string&)> say);
void check_cuda_graph_word(const std::string& word);
// Records by keeping the call and replays by making it: what a CPU can show of recorded work, namely that it depends on
// nothing but what stands in its tensors.
[[nodiscard]] Recorder host_recorder();

class Replay {
 public:
  // `name` is how messages call the work ("training step of length 2048").
  Replay(std::string name, std::function<void()> work, Recorder recorder);
  // `work` once: plainly in the first kPlainRuns calls, in which libraries set themselves up, and wherever nothing
  // records.
  void run();
  // The next run would record it.
  [[nodiscard]] bool is_due() const;
  // Records it where it is due, and runs nothing.
  void record();
  [[nodiscard]] bool recorded() const { return recording_ != nullptr; }
  // Kernels of what was recorded, where somebody counted them.
  [[nodiscard]] std::optional<int64_t> kernels() const { return recording_ ? recording_->kernels() : std::nullopt; }

  static constexpr int kPlainRuns = 3;

 private:
  [[nodiscard]] bool at_once() const { return plain_runs_ == 0 && recorder_.prepared && *recorder_.prepared; }

  std::string name_;
  std::function<void()> work_;
  Recorder recorder_;
  std::unique_ptr<Recording> recording_;
  int plain_runs_ = 0;
};

}  // namespace xformer::training
