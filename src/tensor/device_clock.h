// When a device comes to places in its queue, by its own clock: what lies between two of them took it that long,
// however far the host was ahead when it asked.
#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <cstddef>
#include <vector>

namespace xformer {

class DeviceClock {
 public:
  // Of the queue (stream) that is the calling thread's now; `device` is no CPU. Takes some milliseconds: it finds out
  // what a place by itself takes.
  explicit DeviceClock(const at::Device& device);
  // A place behind all that was asked for so far. Places count from 0.
  size_t mark();
  // Until the device has passed all of them.
  void wait() const;
  [[nodiscard]] bool passed(size_t place) const;
  // Of two places that were passed, without what the places themselves take, that between them and the later one.
  [[nodiscard]] double seconds(size_t from, size_t to) const;
  [[nodiscard]] double mark_seconds() const { return mark_seconds_; }
  // Places count from 0 again.
  void restart() { used_ = 0; }

 private:
  at::Device device_;
  c10::Stream stream_;
  std::vector<c10::Event> events_;  // kept for the next turn
  size_t used_ = 0;
  double mark_seconds_ = 0;
};

}  // namespace xformer
