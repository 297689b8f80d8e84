// The claims of attention-core 1, per name, as the contract suite holds every attention to them. They are not read from
// the variants' own traits, which must agree.
#pragma once

#include "attention/support.h"
#include "contract/gradients.h"

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
  double growth = 0;        // of the FLOPs from 240 to 480 tokens, where it is not that of the complexity
};

// Softmax is blind to what all keys have in common.
inline const std::vector<std::string> kKeyBias = {"key.bias"};
// `none` reads neither.
inline const std::vector<std::string> kQueryAndKey = {"query.weight", "query.bias", "key.weight", "key.bias"};
inline constexpr auto kLinear = Complexity::kLinear;
inline constexpr auto kQuadratic = Complexity::kQuadratic;

// Combiner's.
inline const Claims kSummaries{.appended_padding = true,
                               .constant_v = Constant::kExact,
                               .causal = true,
                               .complexity = Complexity::kRootN,
                               .without_gradient = kKeyBias};
inline const Claims kTreeSummaries{.appended_padding = true,
                                   .constant_v = Constant::kExact,
                                   .causal = true,
                                   .complexity = Complexity::kLinearithmic,
                                   .without_gradient = kKeyBias,
                                   .growth = 2.25};
// What many have in common: softmax over all pairs, over few keys of each row, and sums of kernels.
inline const Claims kAllPairs{.appended_padding = true,
                              .constant_v = Constant::kExact,
                              .permutation = true,
                              .causal = true,
                              .complexity = kQuadratic,
                              .without_gradient = kKeyBias};
inline const Claims kFewKeys{.appended_padding = true,
                             .constant_v = Constant::kExact,
                             .causal = true,
                             .complexity = kLinear,
                             .without_gradient = kKeyBias};
inline const Claims kAdditive{.appended_padding = true,
                              .constant_v = Constant::kExact,
                              .permutation = true,
                              .causal = true,
                              .complexity = kQuadratic};
inline const Claims kLogSparse{.appended_padding = true,
                               .constant_v = Constant::kExact,
                               .causal = true,
                               .complexity = Complexity::kLinearithmic,
                               .without_gradient = kKeyBias,
                               .growth = 2.25};
// By distance too, from a segment and what was before it.
inline const Claims kRelative{
    .appended_padding = true, .causal = true, .complexity = kQuadratic, .without_gradient = kKeyBias};
inline const Claims kSums{.appended_padding = true,
                          .constant_v = Constant::kNearly,
                          .permutation = true,
                          .causal = true,
                          .complexity = kLinear};

// Without what pooling takes away; of the form under mrs-, and of what has no causal form.
inline Claims pooled(Claims claims) {
  claims.permutation = claims.causal = false;
  return claims;
}

inline const std::map<std::string, Claims> kClaims = {
    {"softmax", kAllPairs},
    {"softmax-fused", kAllPairs},
    {"transformer-xl", kRelative},
    {"compressive", kRelative},
    {"linformer", {.appended_padding = true, .complexity = kLinear, .fixed_length = true}},
    {"linear", kSums},
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
    {"etc", pooled(kFewKeys)},
    {"local-block", kFewKeys},
    {"local-window", kFewKeys},
    {"longformer", kFewKeys},
    {"mrs-etc", pooled(kFewKeys)},
    {"mrs-local-block", pooled(kFewKeys)},
    {"mrs-local-window", pooled(kFewKeys)},
    {"mrs-longformer", pooled(kFewKeys)},
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
    {"mrs-softmax", pooled(kAllPairs)},
    {"mrs-softmax-fused", pooled(kAllPairs)},
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
    {"image-local-1d", kFewKeys},
    {"mrs-image-local-1d", pooled(kFewKeys)},
    {"image-local-2d", kFewKeys},
    {"mrs-image-local-2d", pooled(kFewKeys)},
    {"memory-compressed", {.appended_padding = true, .causal = true, .complexity = kQuadratic, .prefix_rows = false}},
    {"mrs-memory-compressed", {.appended_padding = true, .complexity = kQuadratic}},
    {"set-induced",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .permutation = true,
      .complexity = kLinear,
      .without_gradient = kKeyBias}},
    {"mrs-set-induced", pooled(kFewKeys)},
    {"set-isab",
     {.appended_padding = true,
      .permutation = true,
      .complexity = kLinear,
      .without_gradient = {"gather.key.bias", "spread.key.bias"}}},
    // Spans may become the length; at first all are the ramp, of which rows at both ends see less.
    {"adaptive-span",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .causal = true,
      .complexity = kQuadratic,
      .fixed_length = true,
      .without_gradient = kKeyBias,
      .growth = 2.13}},
    {"mrs-adaptive-span",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .complexity = kQuadratic,
      .fixed_length = true,
      .without_gradient = kKeyBias,
      .growth = 2.22}},
    {"routing", {.causal = true, .complexity = Complexity::kRootN, .fixed_length = true, .prefix_rows = false}},
    {"bpt", {.appended_padding = true, .causal = true, .complexity = Complexity::kLinearithmic}},
    {"mrs-routing", {.complexity = Complexity::kRootN, .fixed_length = true}},
    {"combiner-fixed", kSummaries},
    {"mrs-combiner-fixed", pooled(kSummaries)},
    {"combiner-axial-vertical", kSummaries},
    {"mrs-combiner-axial-vertical", pooled(kSummaries)},
    {"combiner-axial-horizontal", kSummaries},
    {"mrs-combiner-axial-horizontal", pooled(kSummaries)},
    {"combiner-mixture", kSummaries},
    {"mrs-combiner-mixture", pooled(kSummaries)},
    {"combiner-logsparse", kTreeSummaries},
    {"mrs-combiner-logsparse", pooled(kTreeSummaries)},
    {"combiner-axial-rowmajor", {.appended_padding = true, .causal = true, .complexity = Complexity::kRootN}},
    {"combiner-learnable",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .permutation = true,
      .complexity = Complexity::kRootN,
      .fixed_length = true,
      .without_gradient = kKeyBias}},
    {"mrs-combiner-learnable",
     {.appended_padding = true,
      .constant_v = Constant::kExact,
      .complexity = Complexity::kRootN,
      .fixed_length = true,
      .without_gradient = kKeyBias}},
    {"paramixer-chord", {.complexity = Complexity::kLinearithmic, .fixed_length = true}},
    {"paramixer-cdil", {.complexity = Complexity::kLinearithmic, .fixed_length = true}},
    {"additive", kAdditive},
    {"mrs-additive", pooled(kAdditive)},
    {"explicit-sparse", kAllPairs},
    {"mrs-explicit-sparse", pooled(kAllPairs)},
    {"adaptively-sparse", kAllPairs},
    {"mrs-adaptively-sparse", pooled(kAllPairs)},
    {"entmax15", kAllPairs},
    {"mrs-entmax15", pooled(kAllPairs)},
    {"sparsemax", kAllPairs},
    {"mrs-sparsemax", pooled(kAllPairs)},
    {"logsparse", kLogSparse},
    {"mrs-logsparse", pooled(kLogSparse)},
    {"diet-cascade", kFewKeys},
    {"mrs-diet-cascade", pooled(kFewKeys)},
    {"diet-dilated", kFewKeys},
    {"mrs-diet-dilated", pooled(kFewKeys)},
    {"diet-dilated-memory", kFewKeys},
    {"mrs-diet-dilated-memory", pooled(kFewKeys)},
    {"clustered", pooled(kFewKeys)},
    {"mrs-clustered", pooled(kFewKeys)},
    {"improved-clustered", pooled(kFewKeys)},
    {"mrs-improved-clustered", pooled(kFewKeys)},
    {"rfa-gaussian", kSums},
    {"mrs-rfa-gaussian", pooled(kSums)},
    {"rfa-arccos", kSums},
    {"mrs-rfa-arccos", pooled(kSums)},
    {"transformer-ls", {.appended_padding = true, .causal = true, .complexity = kLinear, .prefix_rows = false}},
    {"star-transformer",
     {.appended_padding = true, .complexity = kLinear, .without_gradient = {"ring.key.bias", "relay.key.bias"}}},
    // `xformer new attention` adds rows above.
};

// Small sizes for all; a name takes the keys it has.
inline const Json kSmall = {{"features", 12},     {"projected_len", 4}, {"block", 3},       {"random_blocks", 1},
                            {"global_tokens", 2}, {"stride", 5},        {"summary", 2},     {"budget", 0.25},
                            {"window", {5}},      {"first", 0},         {"rates", {2, 5}},  {"router_gradient", "gate"},
                            {"landmarks", 4},     {"conv_kernel", 5},   {"packed_len", 3},  {"blend", "convex"},
                            {"chunk", 4},         {"dot", true},        {"rank", 3},        {"compression_rate", 2},
                            {"columns", 5},       {"block_height", 2},  {"block_width", 2}, {"memory_height", 1},
                            {"memory_width", 1},  {"memory_length", 4}, {"inducing", 4},    {"compressor", "mean"},
                            {"hash_bits", 16},    {"top_k", 4},         {"local", 2},       {"compressed_memory", 4},
                            {"first_window", 3},  {"segment", 3},       {"memory", 6},      {"scales", {1, 3}},
                            {"clusters", 3},      {"links", 3}};

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

}  // namespace xformer::attention::contract
