// What the tests of attentions share: building by name, random inputs (attention-core 10), references in plain loops.
#pragma once

#include <catch2/catch.hpp>

#include <cmath>
#include <functional>

#include "attention/descriptor.h"

namespace xformer::attention::support {

struct Setup {
  int64_t heads = 2, head_dim = 5, max_len = 48, layer = 0, pinned = 0;
  bool causal = false;
  double dropout = 0;
  uint64_t seed = 1;
  at::ScalarType type = at::kDouble;
  std::shared_ptr<SharedObjects> shared = nullptr;  // of an earlier layer
};

inline BuildContext make_context(const Setup& setup) {
  BuildContext context;
  context.heads = setup.heads;
  context.head_dim = setup.head_dim;
  context.model_dim = setup.heads * setup.head_dim;
  context.max_len = setup.max_len;
  context.layer = setup.layer;
  context.pinned_tokens = setup.pinned;
  context.causal = setup.causal;
  context.dropout = setup.dropout;
  context.dropout_stream = std::make_shared<kernels::DropoutStream>(setup.seed);
  context.shared = setup.shared ? setup.shared : std::make_shared<SharedObjects>();
  context.init = InitStream(setup.seed).child("layer" + std::to_string(setup.layer));
  return context;
}

// Defaults with `overrides` over them. A key the attention lacks is left out, so that one table serves all names.
inline Json full_options(const Resolved& attention, const Json& overrides = Json::object()) {
  Json result = Json::object();
  for (const OptionInfo& info : attention.options())
    result[info.name] = info.normalise(overrides.contains(info.name) ? overrides.at(info.name) : info.fallback);
  return result;
}

template <class Module>
struct Built {
  std::shared_ptr<Module> module;
  std::shared_ptr<SharedObjects> shared;

  // Everything that is trained, and everything that is saved.
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> parameters() const {
    std::vector<std::pair<std::string, at::Tensor>> result;
    for (const auto& item : module->named_parameters()) result.emplace_back(item.key(), item.value());
    for (const auto& item : shared->named_parameters()) result.emplace_back("shared." + item.key(), item.value());
    return result;
  }
  [[nodiscard]] int64_t parameter_count() const {
    int64_t count = 0;
    for (const auto& [name, parameter] : parameters()) count += parameter.numel();
    return count;
  }
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> state() const {
    auto result = parameters();
    for (const auto& item : module->named_buffers()) result.emplace_back(item.key(), item.value());
    for (const auto& item : shared->named_buffers()) result.emplace_back("shared." + item.key(), item.value());
    return result;
  }
};

struct BuiltCore : Built<AttentionCore> {
  at::Tensor operator()(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const SequenceMask& mask = {}) const {
    Carry carry;
    return module->forward(q, k, v, mask, carry);
  }
};

struct BuiltMixer : Built<SequenceMixer> {
  // As the first batch of a model.
  at::Tensor operator()(const at::Tensor& x, const SequenceMask& mask = {}) const {
    Carry carry = init_state(*module, x.size(0));
    return module->forward(x, mask, carry);
  }
};

inline BuiltCore make_core(const std::string& name, const Json& overrides = Json::object(), const Setup& setup = {}) {
  const Resolved attention = resolve(name);
  const BuildContext context = make_context(setup);
  BuiltCore result{{build_core(attention, full_options(attention, overrides), context), context.shared}};
  result.module->to(setup.type);
  result.shared->to(setup.type);
  result.module->eval();
  return result;
}

// A block takes x and mask as a mixer does.
inline std::shared_ptr<SequenceMixer> build_any(const Resolved& attention, const Json& options,
                                                const BuildContext& context) {
  if (!attention.base->build_block) return build_mixer(attention, options, context);
  check_buildable(attention, options, context.heads, context.causal);
  return attention.base->build_block(options, context);
}

inline BuiltMixer make_mixer(const std::string& name, const Json& overrides = Json::object(), const Setup& setup = {}) {
  const Resolved attention = resolve(name);
  const BuildContext context = make_context(setup);
  BuiltMixer result{{build_any(attention, full_options(attention, overrides), context), context.shared}};
  result.module->to(setup.type);
  result.shared->to(setup.type);
  result.module->eval();
  return result;
}

// The gradient of a tensor: zero where nobody read it.
inline at::Tensor gradient_of(const at::Tensor& x) { return x.grad().defined() ? x.grad() : at::zeros_like(x); }

// N(0, 1), a function of (name, shape).
inline at::Tensor random_tensor(const std::string& name, at::IntArrayRef shape) {
  return InitStream(7, "test").normal(name, shape, 1).to(at::kDouble);
}

struct Inputs {
  at::Tensor q, k, v;  // [b,h,n,d]
};

inline Inputs random_inputs(int64_t b, int64_t h, int64_t n, int64_t d, const std::string& name = "t1") {
  return {random_tensor(name + "q", {b, h, n, d}), random_tensor(name + "k", {b, h, n, d}),
          random_tensor(name + "v", {b, h, n, d})};
}

// The first lengths[i] tokens of sample i are valid.
inline SequenceMask length_mask(const std::vector<int64_t>& lengths, int64_t n, bool causal = false) {
  SequenceMask mask;
  mask.causal = causal;
  mask.key_valid = at::zeros({static_cast<int64_t>(lengths.size()), n}, at::kBool);
  for (size_t b = 0; b < lengths.size(); ++b)
    mask.key_valid[static_cast<int64_t>(b)].narrow(0, 0, lengths[b]).fill_(true);
  return mask;
}

inline double max_difference(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  if (a.numel() == 0) return 0;
  const at::Tensor difference = (a - b).abs();
  return difference.isnan().any().item<bool>() ? INFINITY : difference.max().item<double>();
}

// The rows of valid tokens; the others become zero. x [b,h,n,d] or [b,n,m].
inline at::Tensor valid_rows(const at::Tensor& x, const SequenceMask& mask) {
  if (mask.all_valid()) return x;
  const at::Tensor padded = mask.key_valid.logical_not().unsqueeze(-1);
  return x.masked_fill(x.dim() == 4 ? padded.unsqueeze(1) : padded, 0);
}

// w(b, h, i, j) is the weight before normalisation.
using Weight = std::function<double(int64_t, int64_t, int64_t, int64_t)>;

// o_i = sum_j w_ij v_j / (sum_j w_ij + epsilon) over valid keys, in loops; zero without a key.
inline at::Tensor dense_attention(const at::Tensor& v, const SequenceMask& mask, int64_t queries, const Weight& weight,
                                  double epsilon = 0) {
  const int64_t b = v.size(0), h = v.size(1), n = v.size(2), d = v.size(3);
  const at::Tensor result = at::zeros({b, h, queries, d}, at::kDouble);
  auto out = result.accessor<double, 4>();
  const auto values = v.accessor<double, 4>();
  for (int64_t s = 0; s < b; ++s)
    for (int64_t g = 0; g < h; ++g)
      for (int64_t i = 0; i < queries; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < n; ++j) {
          if (mask.causal && j > i) continue;
          if (!mask.all_valid() && !mask.key_valid[s][j].item<bool>()) continue;
          const double w = weight(s, g, i, j);
          sum += w;
          for (int64_t c = 0; c < d; ++c) out[s][g][i][c] += w * values[s][g][j][c];
        }
        for (int64_t c = 0; c < d && sum > 0; ++c) out[s][g][i][c] /= sum + epsilon;
      }
  return result;
}

// softmax(q k / sqrt(d)) v, no maximum subtracted: the inputs of tests are small.
inline at::Tensor dense_softmax(const Inputs& in, const SequenceMask& mask = {}) {
  const at::Tensor scores = at::matmul(in.q, in.k.transpose(-1, -2)) / std::sqrt(static_cast<double>(in.q.size(-1)));
  const auto s = scores.accessor<double, 4>();
  return dense_attention(in.v, mask, in.q.size(2),
                         [&](int64_t b, int64_t h, int64_t i, int64_t j) { return std::exp(s[b][h][i][j]); });
}

// A mixer of model width 64, two heads of 32: its projections alone have 16,640 parameters (attention-core 7).
inline int64_t parameters_of(const std::string& name, const Json& options = Json::object(), bool causal = false) {
  return make_mixer(name, options, {.heads = 2, .head_dim = 32, .max_len = 2048, .causal = causal}).parameter_count();
}

// Softmax over the valid keys for which allowed(i, j), in loops; rows of padding are zero.
inline at::Tensor masked_reference(const Inputs& in, const SequenceMask& mask,
                                   const std::function<bool(int64_t i, int64_t j)>& allowed) {
  const at::Tensor scores = at::matmul(in.q, in.k.transpose(-1, -2)) / std::sqrt(static_cast<double>(in.q.size(-1)));
  const auto s = scores.accessor<double, 4>();
  return valid_rows(dense_attention(in.v, mask, in.q.size(2),
                                    [&](int64_t b, int64_t h, int64_t i, int64_t j) {
                                      return allowed(i, j) ? std::exp(s[b][h][i][j]) : 0;
                                    }),
                    mask);
}

// Masks of two samples of n tokens: none, and ragged ones.
inline std::vector<SequenceMask> ragged_masks(int64_t n, bool causal = false) {
  return {{{}, causal}, length_mask({n, (2 * n + 1) / 3}, n, causal), length_mask({1, n}, n, causal)};
}

// Rows of one head with d = 1: [1,1,n,1].
inline at::Tensor column(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble).view({1, 1, static_cast<int64_t>(values.size()), 1});
}

}  // namespace xformer::attention::support
