#include "attention/core.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

namespace xformer::attention {

Cost& Cost::operator+=(const Cost& other) {
  flops_executed += other.flops_executed;
  flops_pattern += other.flops_pattern;
  peak_elements += other.peak_elements;
  return *this;
}

namespace {

// In the order of registration; what is registered in two places is visited once.
void for_each_hooks(const torch::nn::Module& root, const std::function<void(Hooks&)>& visit) {
  std::set<const Hooks*> seen;
  for (const auto& module : root.modules())
    if (auto* const hooks = dynamic_cast<Hooks*>(module.get()); hooks != nullptr && seen.insert(hooks).second)
      visit(*hooks);
}

}  // namespace

std::string backends(const torch::nn::Module& root) {
  std::set<std::string> names;
  for_each_hooks(root, [&](Hooks& hooks) { names.insert(hooks.backend()); });
  names.erase("");
  return fmt::format("{}", fmt::join(names, "; "));
}

at::Tensor extra_loss(const torch::nn::Module& root) {
  at::Tensor total;
  for_each_hooks(root, [&](Hooks& hooks) {
    const at::Tensor loss = hooks.extra_loss();
    if (loss.defined()) total = total.defined() ? total + loss : loss;
  });
  return total;
}

void after_step(const torch::nn::Module& root, int64_t step) {
  for_each_hooks(root, [&](Hooks& hooks) { hooks.after_step(step); });
}

State init_state(const torch::nn::Module& root, int64_t batch) {
  State result;
  for_each_hooks(root, [&](Hooks& hooks) { hooks.init_state(batch, result); });
  return result;
}

at::Tensor SharedObjects::parameter(const std::string& key, const std::function<at::Tensor()>& make) {
  std::string name = key;
  for (char& letter : name)
    if (letter == '.' || letter == '/') letter = '_';
  if (const at::Tensor* known = named_parameters(false).find(name)) return *known;
  return register_parameter(name, make());
}

at::Tensor SharedObjects::buffer(const std::string& key, const std::function<at::Tensor()>& make) {
  std::string name = key;
  for (char& letter : name)
    if (letter == '.' || letter == '/') letter = '_';
  if (const at::Tensor* known = named_buffers(false).find(name)) return *known;
  return register_buffer(name, make());
}

at::Tensor BuildContext::shared_parameter(const std::string& key, const std::function<at::Tensor()>& make) const {
  return shared->parameter(scope + key, make);
}

at::Tensor BuildContext::shared_buffer(const std::string& key, const std::function<at::Tensor()>& make) const {
  return shared->buffer(scope + key, make);
}

}  // namespace xformer::attention
