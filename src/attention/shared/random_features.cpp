#include "attention/shared/random_features.h"

#include <fmt/format.h>

namespace xformer::attention {

RandomFeatures::RandomFeatures(const std::string& owner, const std::string& name, int64_t redraw,
                               const BuildContext& context, Draw draw)
    : redraw_(redraw), name_(name), draw_(std::move(draw)), init_(context.init) {
  omega = context.shared->buffer(fmt::format("{}/layer{}/{}", owner, context.layer, name), [&] {
    owner_ = true;
    return draw_(init_.stream(name_));
  });
}

void RandomFeatures::after_step(int64_t step) const {
  if (redraw_ == 0 || !owner_ || step % redraw_ != 0) return;
  omega.copy_(draw_(init_.stream(fmt::format("{}/step{}", name_, step))));
}

}  // namespace xformer::attention
