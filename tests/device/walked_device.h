// A device for tests on machines without one: over host memory, in the place of one of the kinds that LibTorch knows
// (kHPU: tensors may move to it as to CUDA, and LibTorch here has no kernels for it). The plugin's operators run on it
// as on CUDA, from the same sources, their launches walked block by block (kernels/block_walk.h); LibTorch's own run
// by their CPU kernels. What reaches the device is counted.
#pragma once

#include <torch/types.h>

#include <map>
#include <optional>
#include <set>
#include <string>

#include "kernels/block_walk.h"

namespace xformer::kernels {

inline const at::Device kWalkedDevice(at::kHPU, 0);

// Launches of our own operators are walked in this order; none: they are only counted, and results are zero.
void set_walk_order(std::optional<WalkOrder> order);
[[nodiscard]] std::optional<WalkOrder> walk_order();
void count_launch();

// What a launch of a program asks of a multiprocessor.
struct LaunchPlan {
  std::string program;  // the compiler's name for its type
  int threads = 0, resident = 0;
  int64_t shared_bytes = 0;
  auto operator<=>(const LaunchPlan&) const = default;
};
void note_plan(LaunchPlan plan);

struct DeviceWork {
  int64_t launches = 0;                      // of our own programs
  std::set<LaunchPlan> plans;                // theirs, each that is different
  std::map<std::string, int64_t> operators;  // LibTorch's that compute or copy there, by name: a launch each, or more
  int64_t bytes = 0;                         // of all operands and results of either
  int64_t reads = 0;                         // values that the host waited for

  [[nodiscard]] int64_t all_launches() const;
};
// Since the last call.
[[nodiscard]] DeviceWork take_device_work();

// From now on every wait for the device throws what LibTorch throws of a CUDA device in which a kernel failed.
void set_failed(bool failed);
// Pinned blocks that were freed while it had failed: there LibTorch throws, from a destructor.
[[nodiscard]] int64_t pinned_blocks_freed_too_late();

// The device's clock goes on by so many milliseconds with a launch and with an event; at first it stands still.
struct ClockTicks {
  double launch = 0, event = 0;
};
void set_clock_ticks(const ClockTicks& ticks);
// While one of these lives; nothing is computed.
struct Ticks {
  explicit Ticks(const ClockTicks& ticks) {
    set_walk_order(std::nullopt);
    set_clock_ticks(ticks);
  }
  ~Ticks() { set_clock_ticks({}); }
};

}  // namespace xformer::kernels
