#include "tensor/upload.h"

#include <ATen/Functions.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace xformer {

void Upload::operator()(const std::vector<std::pair<at::Tensor, at::Tensor>>& copies) {
  const at::NoGradGuard no_grad;
  if (device_.is_cpu()) {
    for (const auto& [from, to] : copies) at::Tensor(to).copy_(from);
    return;
  }
  Slot& slot = slots_[turn_++ % slots_.size()];
  if (slot.sent) slot.sent->synchronize();
  else slot.sent.emplace(device_.type());
  for (size_t i = 0; i < copies.size(); ++i) {
    const auto& [from, to] = copies[i];
    // In the device's type, so that what travels needs no second pass there.
    if (i == slot.pinned.size())
      slot.pinned.push_back(at::empty(to.sizes(), to.options().device(at::kCPU).pinned_memory(true)));
    slot.pinned[i].copy_(from);
    at::Tensor(to).copy_(slot.pinned[i], /*non_blocking=*/true);
  }
  slot.sent->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

}  // namespace xformer
