// How fast training is: seconds per step since the last line of the log, and all the samples of the process for its
// record.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensor/memory.h"

namespace xformer::training {

// What happened since the last line of the log.
struct StepInterval {
  int64_t steps = 0, examples = 0;
  double seconds = 0;
  double page_faults_per_step = 0;
};

// All of a process, warm-up left out.
struct StepTimes {
  std::vector<double> seconds;               // of a step
  double examples_per_step = 0;              // in the mean: empty rows of a batch are none
  std::vector<double> page_faults_per_step;  // of the log's intervals
  double input_share = 0;                    // of the time of all steps: waiting for the next batch
  double input_seconds = 0;                  // that making a batch took, in the mean, beside the steps or not
};

// The batch of a step.
struct StepInput {
  int64_t examples = 0;  // filled rows
  double waited = 0;     // seconds of the step until it was there
  double made_in = 0;    // seconds that the thread took which made it
};

class StepClock {
 public:
  // A device that works on its own (CUDA) makes the time of one call meaningless: there a sample is the mean of an
  // interval, which ends when the host has waited for the device.
  explicit StepClock(bool asynchronous) : asynchronous_(asynchronous) {}

  void step(double seconds, const StepInput& input) {
    ++interval_.steps;
    interval_.examples += input.examples;
    interval_.seconds += seconds;
    if (++steps_ <= kWarmupSteps) return;
    if (!asynchronous_) times_.seconds.push_back(seconds);
    examples_ += input.examples;
    waited_seconds_ += input.waited;
    made_in_seconds_ += input.made_in;
    all_seconds_ += seconds;
  }

  // `waited`: seconds from the last step until the device was done.
  StepInterval close(double waited) {
    StepInterval result = interval_;
    result.seconds += waited;
    result.page_faults_per_step =
        static_cast<double>(page_faults() - faults_) / static_cast<double>(std::max<int64_t>(1, result.steps));
    const bool warm = steps_ - result.steps >= kWarmupSteps;  // the whole interval
    if (warm) times_.page_faults_per_step.push_back(result.page_faults_per_step);
    if (warm && asynchronous_) times_.seconds.push_back(result.seconds / static_cast<double>(result.steps));
    if (steps_ > kWarmupSteps) all_seconds_ += waited;
    interval_ = {};
    forget_faults();
    return result;
  }

  // Page faults of anything but steps (an evaluation) do not count.
  void forget_faults() { faults_ = page_faults(); }

  [[nodiscard]] StepTimes times() const {
    StepTimes result = times_;
    const auto warm = static_cast<double>(std::max<int64_t>(steps_ - kWarmupSteps, 1));
    result.examples_per_step = static_cast<double>(examples_) / warm;
    result.input_share = all_seconds_ > 0 ? waited_seconds_ / all_seconds_ : 0;
    result.input_seconds = made_in_seconds_ / warm;
    return result;
  }

 private:
  // Libraries set themselves up in these, and a captured step is captured after them.
  static constexpr int64_t kWarmupSteps = 4;

  bool asynchronous_;
  int64_t steps_ = 0, examples_ = 0, faults_ = 0;
  StepInterval interval_;
  StepTimes times_;
  double waited_seconds_ = 0, made_in_seconds_ = 0, all_seconds_ = 0;
};

}  // namespace xformer::training
