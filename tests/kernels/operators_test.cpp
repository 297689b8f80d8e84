// Operators of LibTorch's dispatcher: all are registered, and --kernels check notices a kernel that is wrong.
#include <ATen/Functions.h>

#include <catch2/catch.hpp>
#include <set>

#include "core/error.h"
#include "kernels/fused.h"
#include "kernels/fused_support.h"
#include "kernels/gelu_dropout/cpu.h"
#include "kernels/operator.h"
#include "kernels/policy_scope.h"

namespace xformer::kernels::operators_test {

TEST_CASE("every operator is registered, and with a kernel for the CPU where it is not for devices alone") {
  std::set<std::string> expected{
      "adamw",        "add_step_sums",  "cross_entropy_forward", "dropout", "gradient_norm", "hamming_clusters",
      "hash_buckets", "largest_places", "residual_forward",      "top_keys"},
      found;
  for (const std::string name :
       {"additive_attention", "attention",        "batched_product",   "branch",          "convolve_tokens",
        "embedding",          "entmax_attention", "feature_attention", "feed_forward",    "gelu_dropout",
        "hashed_attention",   "linear",           "listed_attention",  "pool_heads",      "project_tokens",
        "pseudo_inverse",     "repeat_heads",     "residual_norm",     "rolled_rows",     "running_max",
        "set_attention",      "set_max",          "joined_softmax",    "token_mean",      "window_attention",
        "normed_linear",      "pool_beside",      "picked_rows",       "routed_features", "classifier",
        "sine_features",      "unit_rows",        "landmark_weights"})
    expected.insert({name + "_forward", name + "_backward"});
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.getNamespace() != "xformer") continue;
    found.insert(name.name.substr(std::string("xformer::").size()));
    const bool of_devices = name.name == "xformer::cross_entropy_forward" || name.name == "xformer::add_step_sums" ||
                            name.name.starts_with("xformer::classifier");
    CHECK(c10::Dispatcher::singleton().findOp(name)->hasKernelForDispatchKey(c10::DispatchKey::CPU) != of_devices);
  }
  CHECK(found == expected);
}

at::Tensor wrong_forward(const at::Tensor& x, bool, const DropoutPlace&) { return at::gelu(x) * 1.001; }
at::Tensor wrong_backward(const at::Tensor& gradient, const at::Tensor& x, bool, const DropoutPlace&) {
  return at::gelu_backward(gradient, x) * 1.01;
}

// What --kernels check says of an activation whose gradient is taken while `kKernel` stands in for the CPU's.
template <auto kKernel>
std::string said_of(const char* name) {
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::CPU, __FILE__, __LINE__);
  library.impl(name, dispatched<kKernel>);
  const PolicyScope policy(Policy::kCheck);
  try {
    const at::Tensor x = random_tensor("x", {6, 5}, at::kFloat).requires_grad_(true);
    gelu_dropout(x, false, {}).sum().backward();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("--kernels check stops at a wrong kernel, forwards and backwards, and names it") {
  CHECK(said_of<gelu_dropout_forward_cpu>("gelu_dropout_forward").empty());
  CHECK(said_of<wrong_forward>("gelu_dropout_forward")
            .starts_with("xformer::gelu_dropout differs from its reference in output 0"));
  CHECK(said_of<wrong_backward>("gelu_dropout_backward")
            .starts_with("xformer::gelu_dropout differs from its reference in gradient 0"));
  CHECK(said_of<gelu_dropout_backward_cpu>("gelu_dropout_backward").empty());
}

TEST_CASE("--kernels check allows what 16 bits round, and no more") {
  const PolicyScope policy(Policy::kCheck);
  const at::Tensor meant = random_tensor("x", {100}, at::kFloat);
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const auto said = [&](double factor) {
      check_forward("some", {(meant * factor).to(type)}, [&] { return variable_list{meant}; });
    };
    CHECK_NOTHROW(said(1));
    CHECK_THROWS_AS(said(1.03), InternalError);
  }
  CHECK_THROWS_AS(check_forward("some", {(meant * 1.003).to(at::kHalf)}, [&] { return variable_list{meant}; }),
                  InternalError);
}

TEST_CASE("--kernels check allows gradients what those that came in 16 bits were rounded to, four times, and no more") {
  const at::Tensor x = random_tensor("x", {100}, at::kFloat);
  const auto square = [](const variable_list& in) { return variable_list{in[0] * in[0]}; };
  for (const auto& [type, four] : {std::pair{at::kFloat, 1e-3}, {at::kHalf, 1.0 / 128}, {at::kBFloat16, 1.0 / 16}}) {
    CAPTURE(type);
    const at::Tensor gradient = random_tensor("gradient", {100}, at::kFloat).to(type);
    const at::Tensor meant = 2 * x * gradient.to(at::kFloat);
    // Of the larger of the gradient's largest element and that of what came.
    const double largest =
        std::max(meant.abs().max().item<double>(), type == at::kFloat ? 0 : gradient.abs().max().item<double>());
    const auto off = [&](double apart) {
      at::Tensor got = meant.clone();
      got[7] += apart * largest;
      check_backward("some", {x}, {gradient}, {got}, square);
    };
    CHECK_NOTHROW(off(0.95 * four));
    CHECK_THROWS_AS(off(1.05 * four), InternalError);
  }
}

}  // namespace xformer::kernels::operators_test
