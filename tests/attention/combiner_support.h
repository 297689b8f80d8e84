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

// The rows of one head in plain memory.
class Rows {
 public:
  explicit Rows(const at::Tensor& x) : x_(x.contiguous()), width_(x.size(1)) {}
  const double* operator[](int64_t i) const { return x_.const_data_ptr<double>() + i * width_; }
  [[nodiscard]] int64_t width() const { return width_; }

 private:
  at::Tensor x_;  // [n,width]
  int64_t width_;
};

inline double dot_of(const double* a, const double* b, int64_t width) {
  return std::inner_product(a, a + width, b, 0.0);
}

// sum_j softmax_j(logits) values_j.
inline std::vector<double> mean_of(const std::vector<double>& logits, const std::vector<const double*>& values,
                                   int64_t width) {
  std::vector<double> result(static_cast<size_t>(width), 0.0);
  if (logits.empty()) return result;
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (size_t j = 0; j < logits.size(); ++j) {
    const double weight = std::exp(logits[j] - most);
    sum += weight;
    for (int64_t c = 0; c < width; ++c) result[static_cast<size_t>(c)] += weight * values[j][c];
  }
  for (double& one : result) one /= sum;
  return result;
}

inline std::vector<double> pool_of(const Rows& rows, const std::vector<int64_t>& places, const std::string& how) {
  std::vector<double> result;
  for (int64_t c = 0; c < rows.width(); ++c) {
    double sum = 0, most = how == "relu" ? 0 : -INFINITY;
    for (const int64_t j : places) sum += rows[j][c], most = std::max(most, rows[j][c]);
    const double mean = sum / static_cast<double>(places.size());
    result.push_back(how == "mean" ? mean : how == "sum" ? sum : most);
  }
  return result;
}

// Row i of one head.
inline std::vector<double> combined_row(int64_t i, const Rows& q, const Rows& k, const Rows& v,
                                        const std::vector<bool>& valid, const Supports& supports, const Combined& how) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.width()));
  std::vector<double> logits;
  std::vector<const double*> values;
  std::vector<std::vector<double>> means;
  means.reserve(supports.sets.size());
  for (const int64_t j : supports.direct) {
    if (!valid[static_cast<size_t>(j)]) continue;
    logits.push_back(dot_of(q[i], k[j], q.width()) * scale);
    values.push_back(v[j]);
  }
  for (const std::vector<int64_t>& set : supports.sets) {
    std::vector<int64_t> there;
    for (const int64_t j : set)
      if (valid[static_cast<size_t>(j)]) there.push_back(j);
    if (there.empty()) continue;
    const std::vector<double> asks = pool_of(q, there, how.pool), key = pool_of(k, there, how.pool);
    std::vector<double> own;
    std::vector<const double*> tokens;
    for (const int64_t j : there) own.push_back(dot_of(asks.data(), k[j], q.width()) * scale), tokens.push_back(v[j]);
    means.push_back(mean_of(own, tokens, v.width()));
    values.push_back(means.back().data());
    const double more = how.log_count ? std::log(static_cast<double>(there.size())) : 0;
    logits.push_back(dot_of(q[i], key.data(), q.width()) * scale + more);
  }
  return mean_of(logits, values, v.width());
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
  at::Tensor result = at::zeros(in.v.sizes(), at::kDouble);
  auto out = result.accessor<double, 4>();
  for (int64_t b = 0; b < in.q.size(0); ++b) {
    const std::vector<bool> valid = valid_tokens(mask, b, n);
    for (int64_t h = 0; h < in.q.size(1); ++h) {
      const Rows q(in.q[b][h]), k(in.k[b][h]), v(in.v[b][h]);
      for (int64_t i = 0; i < n; ++i) {
        if (!valid[static_cast<size_t>(i)]) continue;
        const std::vector<double> row = combined_row(i, q, k, v, valid, pattern(b, h, i), how);
        for (int64_t c = 0; c < v.width(); ++c) out[b][h][i][c] = row[static_cast<size_t>(c)];
      }
    }
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

// A row each of whose sets has one key: with log_count_bias it is softmax attention's, and without, a set's weight
// beside the direct tokens' is as much less as the set has tokens.
inline void check_counts(const std::string& name, const Json& options, const Supports& supports, int64_t row, int64_t n,
                         bool causal) {
  INFO(name << " causal " << causal << " row " << row);
  Inputs in = random_inputs(1, 1, n, n, "counts");
  in.v = at::eye(n, at::kDouble).expand({1, 1, n, n});
  for (const std::vector<int64_t>& set : supports.sets)
    for (const int64_t j : set) in.k.select(2, j).copy_(in.k.select(2, set[0]));
  const SequenceMask mask{{}, causal};
  const auto run = [&](bool log_count) {
    Json all = options;
    all["log_count_bias"] = log_count;
    return make_core(name, all, {.heads = 1, .head_dim = n, .causal = causal})(in.q, in.k, in.v, mask)[0][0][row];
  };
  const at::Tensor full = dense_softmax(in, mask)[0][0][row], plain = run(false);
  CHECK(max_difference(run(true), full) < 1e-12);
  const auto beside = [&](const at::Tensor& weights, const std::vector<int64_t>& set) {
    const auto sum = [&](const std::vector<int64_t>& tokens) {
      return weights.index_select(0, at::tensor(tokens, at::kLong)).sum().item<double>();
    };
    return sum(set) / sum(supports.direct);
  };
  for (const std::vector<int64_t>& set : supports.sets)
    CHECK(beside(full, set) == Approx(static_cast<double>(set.size()) * beside(plain, set)));
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
