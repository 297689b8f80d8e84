// A step's sums (step_sums.h) as a device program: a thread for each number.
#pragma once

#include "kernels/device/thread.h"

namespace xformer::kernels {

struct StepSumsArguments {
  double* meter = nullptr;  // [k+2]
  const double *sums = nullptr, *skipped = nullptr;
  int64_t k = 0;
};

inline constexpr LaunchGrid kStepSumsGrid{1, 0};

struct StepSumsProgram {
  static constexpr int kThreads = kWarp, kResident = 1;
  StepSumsArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const double skipped = *a.skipped;
    for (int64_t i = thread.index(); i < a.k + 2; i += kThreads) {
      if (i == a.k + 1) a.meter[i] = (a.meter[i] + 1) * skipped;
      else a.meter[i] += i == a.k ? skipped : skipped > 0 ? 0 : a.sums[i];
    }
  }
};

}  // namespace xformer::kernels
