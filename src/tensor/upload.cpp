#include "tensor/upload.h"

#include <ATen/Functions.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "core/error.h"

namespace xformer {

namespace {

constexpr int64_t kAlignment = 256;  // bytes: every tensor begins where LibTorch's own memory would

int64_t bytes_of(const std::vector<int64_t>& shape, at::ScalarType type) {
  return c10::multiply_integers(shape) * static_cast<int64_t>(c10::elementSize(type));
}

}  // namespace

Upload::Upload(const at::Device& device, const Shapes& shapes) : device_(device), shapes_(shapes) {
  int64_t bytes = 0;
  for (const auto& [shape, type] : shapes_) bytes += (bytes_of(shape, type) + kAlignment - 1) / kAlignment * kAlignment;
  block_ = at::zeros({bytes}, at::TensorOptions(device).dtype(at::kByte));
  tensors_ = views_of(block_);
}

Upload::~Upload() {
  for (Slot& slot : slots_) {
    try {
      if (slot.sent) slot.sent->synchronize();
    } catch (const c10::Error&) {
      static_cast<void>(new Slot(std::move(slot)));
    }
  }
}

std::vector<at::Tensor> Upload::views_of(const at::Tensor& block) const {
  std::vector<at::Tensor> views;
  int64_t place = 0;
  for (const auto& [shape, type] : shapes_) {
    const int64_t bytes = bytes_of(shape, type);
    views.push_back(block.narrow(0, place, bytes).view(type).view(shape));
    place += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  return views;
}

void Upload::operator()(const std::vector<at::Tensor>& from) {
  const at::NoGradGuard no_grad;
  XF_ASSERT(from.size() == tensors_.size(), "{} tensors for {} places", from.size(), tensors_.size());
  const auto copy_into = [&](const std::vector<at::Tensor>& to) {
    for (size_t i = 0; i < from.size(); ++i) at::Tensor(to[i]).copy_(from[i]);
  };
  if (device_.is_cpu()) return copy_into(tensors_);
  Slot& slot = slots_[turn_++ % slots_.size()];
  if (slot.sent) {
    slot.sent->synchronize();
  } else {
    slot.sent.emplace(device_.type());
    slot.pinned = at::zeros(block_.sizes(), block_.options().device(at::kCPU).pinned_memory(true));
    slot.views = views_of(slot.pinned);
  }
  copy_into(slot.views);
  block_.copy_(slot.pinned, /*non_blocking=*/true);
  slot.sent->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

}  // namespace xformer
