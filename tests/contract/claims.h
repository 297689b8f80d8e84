// The claims of attention-core 1, per name, as the contract suite holds every attention to them. They are not read from
// the variants' own traits, which must agree.
#pragma once

#include "attention/support.h"

namespace xformer::attention::contract {

using namespace support;

enum class Constant { kNo, kExact, kNearly };  // V = c gives c; nearly: a small constant stands in the denominator

// A row says what holds; what it leaves out does not.
struct Claims {
  bool appended_padding = false;  // P2
  Constant constant_v = Constant::kNo;
  bool permutation = false;  // permuting tokens permutes outputs
  bool causal = false;
  Complexity complexity = Complexity::kQuadratic;
  bool fixed_length = false;  // parameters tied to the longest length
  // Parameters whose gradient is zero because the function does not depend on them.
  std::vector<std::string> without_gradient = {};
  bool prefix_rows = true;  // a causal row is the last row of the bidirectional form over its prefix
};

// Softmax is blind to what all keys have in common.
inline const std::vector<std::string> kKeyBias = {"key.bias"};
// `none` reads neither.
inline const std::vector<std::string> kQueryAndKey = {"query.weight", "query.bias", "key.weight", "key.bias"};
inline constexpr auto kLinear = Complexity::kLinear;
inline constexpr auto kQuadratic = Complexity::kQuadratic;

inline const std::map<std::string, Claims> kClaims = {
    {"softmax",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .permutation = true,
      .causal = true,
      .complexity = kQuadratic,
      .without_gradient = kKeyBias}},
    {"softmax-fused",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .permutation = true,
      .causal = true,
      .complexity = kQuadratic,
      .without_gradient = kKeyBias}},
    {"linformer", {.appended_padding = true, .complexity = kLinear, .fixed_length = true}},
    {"linear",
     {.appended_padding = true,
      .constant_v = Constant::kNearly,
      .permutation = true,
      .causal = true,
      .complexity = kLinear}},
    {"performer",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .permutation = true,
      .causal = true,
      .complexity = kLinear}},
    {"sinkhorn",
     {.appended_padding = true,
      .causal = true,
      .complexity = kQuadratic,
      .fixed_length = true,
      .without_gradient = {"core.sort_bias"},
      .prefix_rows = false}},
    {"mrs-sinkhorn",
     {.appended_padding = true,
      .complexity = kQuadratic,
      .fixed_length = true,
      .without_gradient = {"core.scale1.sort_bias", "core.scale3.sort_bias"}}},
    {"sparse-fixed",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .causal = true,
      .complexity = Complexity::kRootN,
      .without_gradient = kKeyBias}},
    {"sparse-strided",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .causal = true,
      .complexity = Complexity::kRootN,
      .without_gradient = kKeyBias}},
    {"mrs-sparse-fixed",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .complexity = Complexity::kRootN,
      .without_gradient = kKeyBias}},
    {"mrs-sparse-strided",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .complexity = Complexity::kRootN,
      .without_gradient = kKeyBias}},
    {"bigbird-itc",
     {.constant_v = Constant::kExact, .complexity = kLinear, .fixed_length = true, .without_gradient = kKeyBias}},
    {"bigbird-etc",
     {.constant_v = Constant::kExact, .complexity = kLinear, .fixed_length = true, .without_gradient = kKeyBias}},
    {"mrs-bigbird-itc",
     {.constant_v = Constant::kExact, .complexity = kLinear, .fixed_length = true, .without_gradient = kKeyBias}},
    {"mrs-bigbird-etc",
     {.constant_v = Constant::kExact, .complexity = kLinear, .fixed_length = true, .without_gradient = kKeyBias}},
    {"adamra", {.appended_padding = true, .complexity = kLinear}},
    {"adamra-rand", {.appended_padding = true, .complexity = kLinear}},
    {"adamra-softmax", {.appended_padding = true, .complexity = kQuadratic, .without_gradient = kKeyBias}},
    {"adamra-elu", {.appended_padding = true, .complexity = kLinear}},
    {"mra2", {.constant_v = Constant::kExact, .complexity = kQuadratic}},
    {"mra2-s", {.constant_v = Constant::kExact, .complexity = kQuadratic, .without_gradient = kKeyBias}},
    {"mrs-mra2", {.constant_v = Constant::kExact, .complexity = kQuadratic}},
    {"mrs-mra2-s", {.constant_v = Constant::kExact, .complexity = kQuadratic, .without_gradient = kKeyBias}},
    {"etc",
     {.appended_padding = true, .constant_v = Constant::kExact, .complexity = kLinear, .without_gradient = kKeyBias}},
    {"local-block",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .causal = true,
      .complexity = kLinear,
      .without_gradient = kKeyBias}},
    {"local-window",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .causal = true,
      .complexity = kLinear,
      .without_gradient = kKeyBias}},
    {"longformer",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .causal = true,
      .complexity = kLinear,
      .without_gradient = kKeyBias}},
    {"mrs-etc",
     {.appended_padding = true, .constant_v = Constant::kExact, .complexity = kLinear, .without_gradient = kKeyBias}},
    {"mrs-local-block",
     {.appended_padding = true, .constant_v = Constant::kExact, .complexity = kLinear, .without_gradient = kKeyBias}},
    {"mrs-local-window",
     {.appended_padding = true, .constant_v = Constant::kExact, .complexity = kLinear, .without_gradient = kKeyBias}},
    {"mrs-longformer",
     {.appended_padding = true, .constant_v = Constant::kExact, .complexity = kLinear, .without_gradient = kKeyBias}},
    {"performer-relu",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .permutation = true,
      .causal = true,
      .complexity = kLinear}},
    {"conv-linformer",
     {.appended_padding = true,
      .complexity = kLinear,
      .fixed_length = true,
      .without_gradient = {"core.conv_key_bias"}}},
    {"nystromformer", {.complexity = kLinear, .without_gradient = kKeyBias}},
    {"luna",
     {.appended_padding = true,
      .permutation = true,
      .complexity = kLinear,
      .without_gradient = {"key.bias", "core.packed_key.bias"}}},
    {"fmm", {.appended_padding = true, .constant_v = Constant::kNearly, .causal = true, .complexity = kLinear}},
    {"mrs-performer-relu", {.appended_padding = true, .constant_v = Constant::kExact, .complexity = kLinear}},
    {"mrs-conv-linformer",
     {.appended_padding = true,
      .complexity = kLinear,
      .fixed_length = true,
      .without_gradient = {"core.scale1.conv_key_bias", "core.scale3.conv_key_bias"}}},
    {"mrs-nystromformer", {.complexity = kLinear, .without_gradient = kKeyBias}},
    {"mrs-luna",
     {.appended_padding = true,
      .complexity = kLinear,
      .without_gradient = {"key.bias", "core.scale1.packed_key.bias", "core.scale3.packed_key.bias"}}},
    {"mrs-fmm", {.appended_padding = true, .constant_v = Constant::kNearly, .complexity = kLinear}},
    {"none",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .permutation = true,
      .causal = true,
      .complexity = kLinear,
      .without_gradient = kQueryAndKey}},
    {"mrs-none",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .complexity = kLinear,
      .without_gradient = kQueryAndKey}},
    {"reformer",
     {.constant_v = Constant::kExact,
      .causal = true,
      .complexity = Complexity::kLinearithmic,
      .fixed_length = true,
      .prefix_rows = false}},
    {"synth-dense",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .causal = true,
      .complexity = kQuadratic,
      .fixed_length = true,
      .without_gradient = kKeyBias}},
    {"synth-random",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .causal = true,
      .complexity = kQuadratic,
      .fixed_length = true,
      .without_gradient = kKeyBias}},
    {"synth-random-dot",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .causal = true,
      .complexity = kQuadratic,
      .fixed_length = true,
      .without_gradient = kKeyBias}},
    {"synth-fact-random",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .causal = true,
      .complexity = kQuadratic,
      .fixed_length = true,
      .without_gradient = kKeyBias}},
    {"synth-fact-dense",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .causal = true,
      .complexity = kQuadratic,
      .fixed_length = true,
      .without_gradient = kKeyBias}},
    {"mrs-softmax",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .complexity = kQuadratic,
      .without_gradient = kKeyBias}},
    {"mrs-softmax-fused",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .complexity = kQuadratic,
      .without_gradient = kKeyBias}},
    {"mrs-linformer", {.appended_padding = true, .complexity = kLinear, .fixed_length = true}},
    {"mrs-linear", {.appended_padding = true, .constant_v = Constant::kNearly, .complexity = kLinear}},
    {"mrs-performer", {.appended_padding = true, .constant_v = Constant::kExact, .complexity = kLinear}},
    {"axial",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .causal = true,
      .complexity = Complexity::kRootN,
      .without_gradient = kKeyBias}},
    {"mrs-axial",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .complexity = Complexity::kRootN,
      .without_gradient = kKeyBias}},
    {"blockwise",
     {.constant_v = Constant::kExact,
      .causal = true,
      .complexity = kQuadratic,
      .without_gradient = kKeyBias,
      .prefix_rows = false}},
    {"mrs-blockwise", {.constant_v = Constant::kExact, .complexity = kQuadratic, .without_gradient = kKeyBias}},
    {"image-local-1d",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .causal = true,
      .complexity = kLinear,
      .without_gradient = kKeyBias}},
    {"mrs-image-local-1d",
     {.appended_padding = true, .constant_v = Constant::kExact, .complexity = kLinear, .without_gradient = kKeyBias}},
    {"image-local-2d",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .causal = true,
      .complexity = kLinear,
      .without_gradient = kKeyBias}},
    {"mrs-image-local-2d",
     {.appended_padding = true, .constant_v = Constant::kExact, .complexity = kLinear, .without_gradient = kKeyBias}},
    {"memory-compressed", {.appended_padding = true, .causal = true, .complexity = kQuadratic, .prefix_rows = false}},
    {"mrs-memory-compressed", {.appended_padding = true, .complexity = kQuadratic}},
    {"set-induced",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .permutation = true,
      .complexity = kLinear,
      .without_gradient = kKeyBias}},
    {"mrs-set-induced",
     {.appended_padding = true, .constant_v = Constant::kExact, .complexity = kLinear, .without_gradient = kKeyBias}},
    {"set-isab",
     {.appended_padding = true,
      .permutation = true,
      .complexity = kLinear,
      .without_gradient = {"gather.key.bias", "spread.key.bias"}}},
    {"adaptive-span",
     {.appended_padding = true,
      .constant_v = Constant::kNearly,
      .causal = true,
      .complexity = kQuadratic,
      .fixed_length = true,
      .without_gradient = kKeyBias}},
    {"mrs-adaptive-span",
     {.appended_padding = true,
      .constant_v = Constant::kNearly,
      .complexity = kQuadratic,
      .fixed_length = true,
      .without_gradient = kKeyBias}},
    {"routing", {.causal = true, .complexity = Complexity::kRootN, .fixed_length = true, .prefix_rows = false}},
    {"mrs-routing", {.complexity = Complexity::kRootN, .fixed_length = true}},
    // `xformer new attention` adds rows above.
};

// Small sizes for all; a name takes the keys it has.
inline const Json kSmall = {{"features", 12},     {"projected_len", 4}, {"block", 3},       {"random_blocks", 1},
                            {"global_tokens", 2}, {"stride", 5},        {"summary", 2},     {"budget", 0.25},
                            {"window", {5}},      {"first", 0},         {"rates", {2, 5}},  {"router_gradient", "gate"},
                            {"landmarks", 4},     {"conv_kernel", 5},   {"packed_len", 3},  {"blend", "convex"},
                            {"chunk", 4},         {"dot", true},        {"rank", 3},        {"scales", {1, 3}},
                            {"columns", 6},       {"block_height", 2},  {"block_width", 2}, {"memory_height", 1},
                            {"memory_width", 1},  {"memory_length", 4}, {"inducing", 4}};

inline void for_each_name(const std::function<void(const std::string&, const Claims&)>& check) {
  for (const std::string& name : all_names()) {
    INFO(name);
    if (resolve(name).name != name) continue;  // an alias
    REQUIRE(kClaims.count(name) == 1);         // a new attention states its claims here
    check(name, kClaims.at(name));
  }
}

// kSmall, and kSmall with each choice that an option offers and with each switch the other way.
inline std::vector<Json> option_sets(const Resolved& attention) {
  std::vector<Json> sets{kSmall};
  const auto with = [&](const std::string& key, const Json& value) {
    sets.push_back(kSmall);
    sets.back()[key] = value;
  };
  for (const OptionInfo& info : attention.options()) {
    for (const std::string& choice : info.rule.choices) with(info.name, choice);
    if (info.type == OptionType::kBool) with(info.name, !info.fallback.get<bool>());
  }
  return sets;
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
