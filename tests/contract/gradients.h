// Gradients against finite differences.
#pragma once

#include "attention/support.h"

namespace xformer::attention::contract {

using namespace support;

// Derivative of f along random directions by central differences against the gradient, for each tensor.
inline void check_gradients(const std::function<at::Tensor()>& f,
                            const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  for (const auto& [key, tensor] : tensors) tensor.mutable_grad() = at::Tensor();
  f().backward();
  for (const auto& [key, tensor] : tensors)
    for (int direction = 0; direction < 3; ++direction) {
      INFO(key << " direction " << direction);
      const at::NoGradGuard no_grad;
      const at::Tensor step = random_tensor("direction" + std::to_string(direction), tensor.sizes());
      const at::Tensor original = tensor.data().clone();
      const double h = 1e-6;
      tensor.data().copy_(original + h * step);
      const double above = f().item<double>();
      tensor.data().copy_(original - h * step);
      const double below = f().item<double>();
      tensor.data().copy_(original);
      const double expected = (above - below) / (2 * h), got = (gradient_of(tensor) * step).sum().item<double>();
      // Differences of numbers near 10 in steps of 1e-6 are good to some 1e-9.
      CHECK(std::abs(got - expected) < 1e-6 * std::max(std::abs(expected), 1e-2));
    }
}

}  // namespace xformer::attention::contract
