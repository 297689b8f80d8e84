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
};

// Softmax is blind to what all keys have in common.
inline const std::vector<std::string> kKeyBias = {"key.bias"};
inline constexpr auto kLinear = Complexity::kLinear;
inline constexpr auto kQuadratic = Complexity::kQuadratic;

inline const std::map<std::string, Claims> kClaims = {
    {"softmax", {true, Constant::kExact, true, true, kQuadratic, false, kKeyBias}},
    {"softmax-fused", {true, Constant::kExact, true, true, kQuadratic, false, kKeyBias}},
    {"linformer", {true, Constant::kNo, false, false, kLinear, true, {}}},
    {"linear", {true, Constant::kNearly, true, true, kLinear, false, {}}},
    {"performer", {true, Constant::kExact, true, true, kLinear, false, {}}},
    {"mrs-softmax", {true, Constant::kExact, false, false, kQuadratic, false, kKeyBias}},
    {"mrs-softmax-fused", {true, Constant::kExact, false, false, kQuadratic, false, kKeyBias}},
    {"mrs-linformer", {true, Constant::kNo, false, false, kLinear, true, {}}},
    {"mrs-linear", {true, Constant::kNearly, false, false, kLinear, false, {}}},
    {"mrs-performer", {true, Constant::kExact, false, false, kLinear, false, {}}},
};

// Small sizes for all; a name takes the keys it has.
inline const Json kSmall = {{"features", 12}, {"projected_len", 4}, {"scales", {1, 3}}};

inline void for_each_name(const std::function<void(const std::string&, const Claims&)>& check) {
  for (const std::string& name : all_names()) {
    INFO(name);
    REQUIRE(kClaims.count(name) == 1);  // a new attention states its claims here
    check(name, kClaims.at(name));
  }
}

inline bool has_core(const std::string& name) { return resolve(name).base->build_core != nullptr; }

inline at::Tensor tokens(int64_t b, int64_t n, int64_t m = 10, const std::string& name = "x") {
  return random_tensor(name, {b, n, m});
}

}  // namespace xformer::attention::contract
