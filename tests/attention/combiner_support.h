// Combiner from its definition: for each row a list of direct keys and lists of summarised ones, in plain loops.
#pragma once

#include <algorithm>
#include <numeric>

#include "attention/support.h"

namespace xformer::attention::support {

struct Supports {
  std::vector<int64_t> direct;
  std::vector<std::vector<int64_t>> sets;  // without empty ones
};
using Pattern = std::function<Supports(int64_t b, int64_t h, int64_t row)>;

struct Combined {
  std::string pool = "max";
  bool log_count = false;
};

// One row of one head: q [d] of the row, all q, k, v [n,d], which tokens are valid.
inline at::Tensor combined_row(const at::Tensor& row, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const std::vector<bool>& valid, const Supports& supports, const Combined& how) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(1)));
  std::vector<double> logits;
  std::vector<at::Tensor> values;
  for (const int64_t j : supports.direct) {
    if (!valid[static_cast<size_t>(j)]) continue;
    logits.push_back(at::dot(row, k[j]).item<double>() * scale);
    values.push_back(v[j]);
  }
  for (const std::vector<int64_t>& set : supports.sets) {
    std::vector<int64_t> there;
    for (const int64_t j : set)
      if (valid[static_cast<size_t>(j)]) there.push_back(j);
    if (there.empty()) continue;
    const at::Tensor places = at::tensor(there, at::kLong);
    const auto pooled = [&](const at::Tensor& x) {
      const at::Tensor rows = x.index_select(0, places);
      if (how.pool == "mean") return rows.mean(0);
      if (how.pool == "sum") return rows.sum(0);
      return (how.pool == "relu" ? at::relu(rows) : rows).amax(0);
    };
    const at::Tensor own = at::softmax(at::mv(k.index_select(0, places), pooled(q)) * scale, 0);
    values.push_back(at::mv(v.index_select(0, places).t(), own));
    const double more = how.log_count ? std::log(static_cast<double>(there.size())) : 0;
    logits.push_back(at::dot(row, pooled(k)).item<double>() * scale + more);
  }
  if (logits.empty()) return at::zeros({v.size(1)}, at::kDouble);
  return at::mv(at::stack(values, 1), at::softmax(at::tensor(logits, at::kDouble), 0));
}

inline std::vector<bool> valid_tokens(const SequenceMask& mask, int64_t b, int64_t n) {
  std::vector<bool> result(static_cast<size_t>(n), true);
  for (int64_t i = 0; i < n && !mask.all_valid(); ++i)
    result[static_cast<size_t>(i)] = mask.key_valid[b][i].item<bool>();
  return result;
}

inline at::Tensor combined(const Inputs& in, const SequenceMask& mask, const Pattern& pattern,
                           const Combined& how = {}) {
  const int64_t n = in.q.size(2);
  at::Tensor result = at::zeros_like(in.v);
  for (int64_t b = 0; b < in.q.size(0); ++b) {
    const std::vector<bool> valid = valid_tokens(mask, b, n);
    for (int64_t h = 0; h < in.q.size(1); ++h)
      for (int64_t i = 0; i < n; ++i)
        if (valid[static_cast<size_t>(i)])
          result[b][h][i] =
              combined_row(in.q[b][h][i], in.q[b][h], in.k[b][h], in.v[b][h], valid, pattern(b, h, i), how);
  }
  return result;
}

// The pattern behind `pinned` tokens, which see all and are seen by all.
inline Pattern behind_pinned(int64_t pinned, int64_t n, bool causal, const Pattern& pattern) {
  return [=](int64_t b, int64_t h, int64_t row) {
    Supports result;
    if (row < pinned) {
      for (int64_t j = 0; j < (causal ? row + 1 : n); ++j) result.direct.push_back(j);
      return result;
    }
    result = pattern(b, h, row - pinned);
    for (int64_t& j : result.direct) j += pinned;
    for (auto& set : result.sets)
      for (int64_t& j : set) j += pinned;
    for (int64_t j = 0; j < pinned; ++j) result.direct.push_back(j);
    return result;
  };
}

// Whether each row's keys are exactly those that it may see, each once.
inline bool partitions(const Pattern& pattern, int64_t n, bool causal) {
  for (int64_t i = 0; i < n; ++i) {
    Supports supports = pattern(0, 0, i);
    std::vector<int64_t> seen = supports.direct;
    for (const auto& set : supports.sets) {
      if (set.empty()) return false;
      seen.insert(seen.end(), set.begin(), set.end());
    }
    std::sort(seen.begin(), seen.end());
    std::vector<int64_t> all(static_cast<size_t>(causal ? i + 1 : n));
    std::iota(all.begin(), all.end(), 0);
    if (seen != all) return false;
  }
  return true;
}

// The weights of a pattern are the core's outputs for V = I, and zero where nothing is seen.
inline at::Tensor effective_weights(const BuiltCore& core, int64_t n, bool causal) {
  const at::Tensor q = random_tensor("weights_q", {1, 1, n, n}), k = random_tensor("weights_k", {1, 1, n, n});
  return core(q, k, at::eye(n, at::kDouble).expand({1, 1, n, n}), {{}, causal})[0][0];
}

// Causal leak, bit for bit: what stands behind a row does not matter.
inline void check_no_leak(const BuiltCore& core, int64_t n, int64_t heads = 2) {
  const Inputs in = random_inputs(1, heads, n, 5), other = random_inputs(1, heads, n, 5, "other");
  const at::Tensor out = core(in.q, in.k, in.v, {{}, true});
  for (int64_t seen = 1; seen < n; ++seen) {
    const auto changed = [&](const at::Tensor& x, const at::Tensor& y) {
      return at::cat({x.narrow(2, 0, seen), y.narrow(2, seen, n - seen) * 100}, 2);
    };
    const at::Tensor leaked = core(changed(in.q, other.q), changed(in.k, other.k), changed(in.v, other.v), {{}, true});
    INFO("tokens seen: " << seen);
    CHECK(at::equal(leaked.narrow(2, 0, seen), out.narrow(2, 0, seen)));
  }
}

// A mask with holes, the first sample whole.
inline SequenceMask holes(int64_t n, bool causal) {
  SequenceMask mask = length_mask({n, n}, n, causal);
  for (int64_t i = 1; i < n; i += 3) mask.key_valid[1][i] = false;
  for (int64_t i = n / 3; i < n / 2; ++i) mask.key_valid[1][i] = false;
  return mask;
}

}  // namespace xformer::attention::support
