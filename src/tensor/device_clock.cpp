// By events that keep the time, of whatever device LibTorch knows.
#include "tensor/device_clock.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "tensor/device.h"

namespace xformer {

DeviceClock::DeviceClock(const at::Device& device)
    : device_(device), stream_(c10::impl::VirtualGuardImpl(device.type()).getStream(device)) {
  constexpr size_t kMarks = 100;
  for (int turn = 0; turn < 2; ++turn) {  // in the first one events are made
    restart();
    hold(device_, 1e-3);
    for (size_t i = 0; i <= kMarks; ++i) mark();
    wait();
  }
  mark_seconds_ = seconds(0, kMarks) / static_cast<double>(kMarks);
  restart();
}

size_t DeviceClock::mark() {
  if (used_ == events_.size()) events_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  events_[used_].record(stream_);
  return used_++;
}

void DeviceClock::wait() const {
  if (used_ > 0) events_[used_ - 1].synchronize();
}

bool DeviceClock::passed(size_t place) const { return events_[place].query(); }

double DeviceClock::seconds(size_t from, size_t to) const {
  return 1e-3 * events_[from].elapsedTime(events_[to]) - mark_seconds_ * static_cast<double>(to - from);
}

}  // namespace xformer
