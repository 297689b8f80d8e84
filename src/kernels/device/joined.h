// Two programs in one launch, for passes that do not read each other's results: blocks of the first, which should be
// those that take longer, begin before those of the second, which fill what the first leave free of a device.
#pragma once

#include <algorithm>

#include "kernels/device/thread.h"

namespace xformer::kernels {

// A thread as one of the programs sees it.
template <class Thread>
class JoinedThread : public Thread {
 public:
  XFORMER_DEVICE JoinedThread(const Thread& thread, int64_t before, int64_t blocks)
      : Thread(thread), before_(before), blocks_(blocks) {}

  [[nodiscard]] XFORMER_DEVICE int64_t block() const { return Thread::block() - before_; }
  [[nodiscard]] XFORMER_DEVICE int64_t blocks() const { return blocks_; }

 private:
  int64_t before_, blocks_;
};

template <class First, class Second>
struct JoinedProgram {
  static_assert(First::kThreads == Second::kThreads);
  static constexpr int kThreads = First::kThreads, kResident = std::min(First::kResident, Second::kResident);
  int64_t first_blocks = 0;
  First first;
  Second second;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    if (thread.block() < first_blocks) first(JoinedThread<Thread>(thread, 0, first_blocks));
    else second(JoinedThread<Thread>(thread, first_blocks, thread.blocks() - first_blocks));
  }
};

[[nodiscard]] constexpr LaunchGrid joined_grid(const LaunchGrid& first, const LaunchGrid& second) {
  return {first.blocks + second.blocks, std::max(first.shared_bytes, second.shared_bytes)};
}

// launch(grid, program) of both, either of which may have no blocks.
template <class First, class Second, class Launch>
void launch_joined(const LaunchGrid& first_grid, const First& first, const LaunchGrid& second_grid,
                   const Second& second, const Launch& launch) {
  const LaunchGrid grid = joined_grid(first_grid, second_grid);
  if (grid.blocks > 0) launch(grid, JoinedProgram<First, Second>{first_grid.blocks, first, second});
}

}  // namespace xformer::kernels
