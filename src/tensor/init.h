// Initial values of parameters as pure functions of (seed, name): the same whatever is built before or after.
#pragma once

#include <torch/types.h>

#include <string>

#include "core/random.h"

namespace xformer {

// Names compose ("layer0" / "query" / "weight"), so that two parameters never share numbers by accident.
class InitStream {
 public:
  explicit InitStream(uint64_t seed, std::string name = "init") : seed_(seed), name_(std::move(name)) {}
  [[nodiscard]] InitStream child(const std::string& name) const { return InitStream(seed_, name_ + "/" + name); }

  // float32 tensors on the CPU.
  [[nodiscard]] at::Tensor uniform(const std::string& name, at::IntArrayRef shape, double low, double high) const;
  [[nodiscard]] at::Tensor normal(const std::string& name, at::IntArrayRef shape, double deviation) const;
  // Normal cut to two deviations and rescaled to keep its variance (LeCun and Xavier's truncated forms).
  [[nodiscard]] at::Tensor truncated_normal(const std::string& name, at::IntArrayRef shape, double deviation) const;
  // Numbers for a purpose that is no tensor (random features, orders).
  [[nodiscard]] Stream stream(const std::string& name) const { return Stream(derive_seed(seed_, name_ + "/" + name)); }

 private:
  uint64_t seed_;
  std::string name_;
};

// One standard normal number (Box and Muller).
[[nodiscard]] double next_normal(Stream& stream);

}  // namespace xformer
