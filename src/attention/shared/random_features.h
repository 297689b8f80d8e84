// Random directions of a layer's feature map: a buffer that all scales of mrs- share, drawn anew from time to time.
#pragma once

#include <functional>

#include "attention/core.h"

namespace xformer::attention {

// The options `features` and `redraw`.
inline constexpr const char* kFeaturesHelp = "number of random features (m)";
inline constexpr const char* kRedrawHelp = "training steps between new random features; 0 keeps the first";

class RandomFeatures {
 public:
  using Draw = std::function<at::Tensor(Stream numbers)>;  // [features, d], float32

  RandomFeatures() = default;
  // Shared under the plain key "<owner>/layer<l>/<name>", without the context's scope, which is what the scales share.
  // `redraw`: training steps between new ones, 0 for never.
  RandomFeatures(const std::string& owner, const std::string& name, int64_t redraw, const BuildContext& context,
                 Draw draw);

  // New values where it is time, by the core that made the first.
  void after_step(int64_t step) const;

  at::Tensor omega;  // [features, d]

 private:
  bool owner_ = false;
  int64_t redraw_ = 0;
  std::string name_;
  Draw draw_;
  InitStream init_{0};
};

}  // namespace xformer::attention
