// Operators under autocast to bf16 on a CPU, for tests: calls, and what is checked of all of them.
#pragma once

#include <ATen/Parallel.h>

#include "fused_support.h"
#include "policy_scope.h"
#include "tensor/autocast.h"

namespace xformer::kernels::bf16_test {

// The largest relative error of one rounding; the mean square's root is 0.41 of it.
inline constexpr double kRounding = 1.0 / 256;

// One call. Inputs are float; those that are activations hold numbers of bf16.
struct Case {
  std::string name;
  TensorFunction fused, reference;
  Tensors inputs;
  double roundings = 1;  // allowed in the root of the mean square of each output and gradient, relative to its own
  std::string ran = "fused-cpu-bf16";
};

inline at::Tensor activation(const std::string& name, at::IntArrayRef shape) {
  return random_tensor(name, shape, at::kBFloat16).to(at::kFloat);
}
inline at::Tensor parameter(const std::string& name, at::IntArrayRef shape) {
  return random_tensor(name, shape, at::kFloat);
}

// Of three samples the first is whole, the second ends early and has a hole, the third is empty or ends early.
inline at::Tensor valid(int64_t n, bool empty) {
  at::Tensor result = at::zeros({3, n}, at::kBool);
  result[0].fill_(true);
  result[1].slice(0, 0, (2 * n + 2) / 3).fill_(true);
  if (n > 4) result[1][2] = false;
  if (!empty) result[2].slice(0, 0, (n + 1) / 2).fill_(true);
  return result;
}

inline TensorFunction under_bf16(const TensorFunction& run) {
  return [run](const Tensors& x) {
    const AutocastScope autocast(at::kCPU, at::kBFloat16);
    return run(x);
  };
}

// The call on numbers of double, its outputs in bf16, so that they get the gradients that the kernel's got.
inline TensorFunction in_double(const TensorFunction& run) {
  return [run](const Tensors& x) {
    Tensors wide;
    for (const at::Tensor& one : x) wide.push_back(one.defined() ? one.to(at::kDouble) : one);
    return run(wide);
  };
}

inline double size_of(const at::Tensor& x) { return x.to(at::kDouble).square().sum().sqrt().item<double>(); }

// Outputs and gradients against those of the definition in double of the same numbers.
inline void check_definitions(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    INFO(one.name);
    reset_backends();
    const Tensors got = run_with_gradients(under_bf16(one.fused), one.inputs);
    CHECK(backends_run().at(one.name) == one.ran);
    Tensors leaves, wanted, heads;
    for (const at::Tensor& input : one.inputs) {
      leaves.push_back(input.defined() ? input.detach() : input);
      if (input.defined()) wanted.push_back(leaves.back().requires_grad_(true));
    }
    Tensors meant = in_double(one.reference)(leaves);
    for (size_t i = 0; i < meant.size(); ++i)
      heads.push_back(random_tensor("gradient" + std::to_string(i), meant[i].sizes(), at::kBFloat16).to(at::kDouble));
    for (const at::Tensor& gradient : torch::autograd::grad(meant, wanted, heads)) meant.push_back(gradient);
    REQUIRE(got.size() == meant.size());
    for (size_t i = 0; i < got.size(); ++i) {
      INFO((i < heads.size() ? "output " : "gradient ")
           << (i < heads.size() ? i : i - heads.size()) << " of " << one.inputs[0].sizes());
      if (i < heads.size()) CHECK(got[i].scalar_type() == at::kBFloat16);
      // Where everything cancels, of one token say, what is left is measured by what did.
      const double own = size_of(meant[i]), incoming = size_of(heads[0]);
      const double measure = own > 1e-3 * incoming ? std::max(own, 1.0) : incoming;
      CHECK(size_of(got[i] - meant[i].detach()) <= one.roundings * kRounding * measure);
    }
  }
}

inline void check_policy(const std::vector<Case>& cases) {
  const PolicyScope scope(Policy::kCheck);
  for (const Case& one : cases) {
    INFO(one.name);
    CHECK_NOTHROW(run_with_gradients(under_bf16(one.fused), one.inputs));
  }
}

// First outputs are zero where they are in float.
inline void check_zeros(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    INFO(one.name);
    const at::Tensor low = under_bf16(one.fused)(one.inputs)[0], full = one.fused(one.inputs)[0];
    CHECK(full.scalar_type() == at::kFloat);
    CHECK((full == 0).any().item<bool>());
    CHECK(at::equal(low == 0, full == 0));
  }
}

// Results are the same bits on one thread and on three.
inline void check_threads(const std::vector<Case>& cases) {
  const int before = at::get_num_threads();
  for (const Case& one : cases) {
    INFO(one.name);
    at::set_num_threads(1);
    const Tensors alone = run_with_gradients(under_bf16(one.fused), one.inputs);
    at::set_num_threads(3);
    const Tensors three = run_with_gradients(under_bf16(one.fused), one.inputs);
    // Attention deals out a head's keys where heads are fewer than threads: not here.
    for (size_t i = 0; i < alone.size(); ++i) CHECK(at::equal(alone[i], three[i]));
  }
  at::set_num_threads(before);
}

}  // namespace xformer::kernels::bf16_test
