// TorchScript files, as torch.jit.script(module).save(path) writes them.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <functional>

#include "core/files.h"

namespace xformer::attention::script_file {

using Setup = std::function<void(torch::jit::Module&)>;

// A module with these attributes (`setup`) and these methods, in a file of its own.
inline std::string write(const Path& path, const std::string& methods, const Setup& setup = {}) {
  torch::jit::Module module("__torch__.MyAttention");
  module.register_attribute("training", c10::BoolType::get(), true);
  if (setup) setup(module);
  module.define(methods);
  module.save(path.string());
  return path.string();
}

// o_i = sum_j w_ij v_j / (sum_j w_ij + epsilon), w_ij = exp(temperature q_i k_j), over valid keys; `causal` is claimed.
inline const std::string kKernel = R"(
def forward(self, q, k, v, mask):
    weights = torch.exp(torch.matmul(q * self.temperature, k.transpose(-1, -2)))
    weights = weights * mask.unsqueeze(1).unsqueeze(1).to(weights.dtype)
    if self.causal:
        weights = torch.tril(weights)
    return torch.matmul(weights, v) / (weights.sum(-1, keepdim=True) + self.epsilon)
)";

inline void kernel_attributes(torch::jit::Module& module) {
  module.register_attribute("epsilon", c10::FloatType::get(), 1e-6);
  module.register_attribute("causal", c10::BoolType::get(), false);
  module.register_parameter("temperature", at::full({1}, 0.5).requires_grad_(true), /*is_buffer=*/false);
}

inline std::string write_kernel(const Path& path) { return write(path, kKernel, kernel_attributes); }

}  // namespace xformer::attention::script_file
