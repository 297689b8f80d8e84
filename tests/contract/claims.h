// The claims of attention-core 1, per name, as the contract suite holds every attention to them. They are not read from
// the variants' own traits, which must agree.
#pragma once

#include "attention/support.h"

namespace xformer::attention::contract {

using namespace support;

enum class Constant { kNo, kExact, kNearly };  // V = c gives c; nearly: a small constant stands in the denominator

struct Claims {
  bool appended_padding;  // P2
  Constant constant_v;
  bool permutation;  // permuting tokens permutes outputs
  bool causal;
  Complexity complexity;
  bool fixed_length;  // parameters tied to the longest length
  // Parameters whose gradient is zero because the function does not depend on them.
  std::vector<std::string> without_gradient;
  bool prefix_rows = true;  // a causal row is the last row of the bidirectional form over its prefix
};

// Softmax is blind to what all keys have in common.
inline const std::vector<std::string> kKeyBias = {"key.bias"};
// `none` reads neither.
inline const std::vector<std::string> kQueryAndKey = {"query.weight", "query.bias", "key.weight", "key.bias"};
inline constexpr auto kLinear = Complexity::kLinear;
inline constexpr auto kQuadratic = Complexity::kQuadratic;

inline const std::map<std::string, Claims> kClaims = {
    {"softmax", {true, Constant::kExact, true, true, kQuadratic, false, kKeyBias}},
    {"softmax-fused", {true, Constant::kExact, true, true, kQuadratic, false, kKeyBias}},
    {"linformer", {true, Constant::kNo, false, false, kLinear, true, {}}},
    {"linear", {true, Constant::kNearly, true, true, kLinear, false, {}}},
    {"performer", {true, Constant::kExact, true, true, kLinear, false, {}}},
    {"sinkhorn", {true, Constant::kExact, false, true, kQuadratic, true, {"core.sort_bias"}, false}},
    {"mrs-sinkhorn",
     {true, Constant::kExact, false, false, kQuadratic, true, {"core.scale1.sort_bias", "core.scale3.sort_bias"}}},
    {"sparse-fixed", {true, Constant::kExact, false, true, Complexity::kRootN, false, kKeyBias}},
    {"sparse-strided", {true, Constant::kExact, false, true, Complexity::kRootN, false, kKeyBias}},
    {"mrs-sparse-fixed", {true, Constant::kExact, false, false, Complexity::kRootN, false, kKeyBias}},
    {"mrs-sparse-strided", {true, Constant::kExact, false, false, Complexity::kRootN, false, kKeyBias}},
    {"bigbird-itc", {false, Constant::kExact, false, false, kLinear, true, kKeyBias}},
    {"bigbird-etc", {false, Constant::kExact, false, false, kLinear, true, kKeyBias}},
    {"mrs-bigbird-itc", {false, Constant::kExact, false, false, kLinear, true, kKeyBias}},
    {"mrs-bigbird-etc", {false, Constant::kExact, false, false, kLinear, true, kKeyBias}},
    {"adamra", {true, Constant::kNo, false, false, kLinear, false, {}}},
    {"adamra-rand", {true, Constant::kNo, false, false, kLinear, false, {}}},
    {"adamra-softmax", {true, Constant::kNo, false, false, kQuadratic, false, kKeyBias}},
    {"adamra-elu", {true, Constant::kNo, false, false, kLinear, false, {}}},
    {"mra2", {false, Constant::kExact, false, false, kQuadratic, false, {}}},
    {"mra2-s", {false, Constant::kExact, false, false, kQuadratic, false, kKeyBias}},
    {"mrs-mra2", {false, Constant::kExact, false, false, kQuadratic, false, {}}},
    {"mrs-mra2-s", {false, Constant::kExact, false, false, kQuadratic, false, kKeyBias}},
    {"etc", {true, Constant::kExact, false, false, kLinear, false, kKeyBias}},
    {"local-block", {true, Constant::kExact, false, true, kLinear, false, kKeyBias}},
    {"local-window", {true, Constant::kExact, false, true, kLinear, false, kKeyBias}},
    {"longformer", {true, Constant::kExact, false, true, kLinear, false, kKeyBias}},
    {"mrs-etc", {true, Constant::kExact, false, false, kLinear, false, kKeyBias}},
    {"mrs-local-block", {true, Constant::kExact, false, false, kLinear, false, kKeyBias}},
    {"mrs-local-window", {true, Constant::kExact, false, false, kLinear, false, kKeyBias}},
    {"mrs-longformer", {true, Constant::kExact, false, false, kLinear, false, kKeyBias}},
    {"performer-relu", {true, Constant::kExact, true, true, kLinear, false, {}}},
    {"conv-linformer", {true, Constant::kNo, false, false, kLinear, true, {"core.conv_key_bias"}}},
    {"nystromformer", {false, Constant::kNo, false, false, kLinear, false, kKeyBias}},
    {"luna", {true, Constant::kNo, true, false, kLinear, false, {"key.bias", "core.packed_key.bias"}}},
    {"fmm", {true, Constant::kNearly, false, true, kLinear, false, {}}},
    {"mrs-performer-relu", {true, Constant::kExact, false, false, kLinear, false, {}}},
    {"mrs-conv-linformer",
     {true, Constant::kNo, false, false, kLinear, true, {"core.scale1.conv_key_bias", "core.scale3.conv_key_bias"}}},
    {"mrs-nystromformer", {false, Constant::kNo, false, false, kLinear, false, kKeyBias}},
    {"mrs-luna",
     {true,
      Constant::kNo,
      false,
      false,
      kLinear,
      false,
      {"key.bias", "core.scale1.packed_key.bias", "core.scale3.packed_key.bias"}}},
    {"mrs-fmm", {true, Constant::kNearly, false, false, kLinear, false, {}}},
    {"none", {true, Constant::kExact, true, true, kLinear, false, kQueryAndKey}},
    {"mrs-none", {true, Constant::kExact, false, false, kLinear, false, kQueryAndKey}},
    {"reformer", {false, Constant::kExact, false, false, Complexity::kLinearithmic, true, {}}},
    {"synth-dense", {true, Constant::kExact, false, true, kQuadratic, true, kKeyBias}},
    {"synth-random", {true, Constant::kExact, false, true, kQuadratic, true, kKeyBias}},
    {"synth-random-dot", {true, Constant::kExact, false, true, kQuadratic, true, kKeyBias}},
    {"synth-fact-random", {true, Constant::kExact, false, true, kQuadratic, true, kKeyBias}},
    {"synth-fact-dense", {true, Constant::kExact, false, true, kQuadratic, true, kKeyBias}},
    {"mrs-softmax", {true, Constant::kExact, false, false, kQuadratic, false, kKeyBias}},
    {"mrs-softmax-fused", {true, Constant::kExact, false, false, kQuadratic, false, kKeyBias}},
    {"mrs-linformer", {true, Constant::kNo, false, false, kLinear, true, {}}},
    {"mrs-linear", {true, Constant::kNearly, false, false, kLinear, false, {}}},
    {"mrs-performer", {true, Constant::kExact, false, false, kLinear, false, {}}},
};

// Small sizes for all; a name takes the keys it has.
inline const Json kSmall = {{"features", 12},     {"projected_len", 4}, {"block", 3},      {"random_blocks", 1},
                            {"global_tokens", 2}, {"stride", 5},        {"summary", 2},    {"budget", 0.25},
                            {"window", {5}},      {"first", 0},         {"rates", {2, 5}}, {"router_gradient", "gate"},
                            {"landmarks", 4},     {"conv_kernel", 5},   {"packed_len", 3}, {"blend", "convex"},
                            {"chunk", 4},         {"dot", true},        {"rank", 3},       {"scales", {1, 3}}};

inline void for_each_name(const std::function<void(const std::string&, const Claims&)>& check) {
  for (const std::string& name : all_names()) {
    INFO(name);
    if (resolve(name).name != name) continue;  // an alias
    REQUIRE(kClaims.count(name) == 1);         // a new attention states its claims here
    check(name, kClaims.at(name));
  }
}

inline bool has_core(const std::string& name) { return resolve(name).base->build_core != nullptr; }

inline at::Tensor tokens(int64_t b, int64_t n, int64_t m = 10, const std::string& name = "x") {
  return random_tensor(name, {b, n, m});
}

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
      const double expected = (above - below) / (2 * h), got = (tensor.grad() * step).sum().item<double>();
      // Differences of numbers near 10 in steps of 1e-6 are good to some 1e-9.
      CHECK(std::abs(got - expected) < 1e-6 * std::max(std::abs(expected), 1e-2));
    }
}

}  // namespace xformer::attention::contract
