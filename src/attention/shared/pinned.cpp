#include "attention/shared/pinned.h"

#include <ATen/Functions.h>

#include <cmath>

#include "attention/shared/global_window.h"
#include "kernels/attention/attention.h"
#include "tensor/probe.h"

namespace xformer::attention {

at::Tensor PinnedTokens::forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const SequenceMask& mask, bool training,
                                 const std::function<at::Tensor(const Rest& rest)>& others) const {
  const int64_t n = q.size(2), p = of(n);
  if (p == 0) return others({q, k, v, mask.key_valid, {}});
  const auto valid = [&](int64_t first, int64_t tokens) {
    return mask.all_valid() ? at::Tensor() : mask.key_valid.narrow(1, first, tokens);
  };
  std::vector<at::Tensor> parts;
  {
    const int64_t seen = causal_ ? p : n;
    kernels::AttentionOptions options;
    options.scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    options.mask = {valid(0, seen), causal_};
    options.query_valid = valid(0, p);
    options.dropout = dropout_.place(training);
    const ProbeScope scope("pinned");
    parts.push_back(kernels::attention(q.narrow(2, 0, p), k.narrow(2, 0, seen), v.narrow(2, 0, seen), options));
  }
  if (n > p) {
    const auto behind = [&](const at::Tensor& x) { return x.narrow(2, p, n - p); };
    Rest rest{behind(q), behind(k), behind(v), valid(p, n - p), {k.narrow(2, 0, p), v.narrow(2, 0, p), {}}};
    if (!mask.all_valid()) rest.pinned.allowed = valid(0, p).unsqueeze(1);
    parts.push_back(others(rest));
  }
  return join_rows(parts);
}

double PinnedTokens::executed_pairs(int64_t n) const {
  const int64_t p = of(n);
  return static_cast<double>(p == 0 ? 0 : kernels::attention_pairs(p, causal_ ? p : n, causal_));
}

double PinnedTokens::pattern_pairs(int64_t n) const {
  const int64_t p = of(n);
  return static_cast<double>(causal_ ? p * (p + 1) / 2 : p * n);
}

}  // namespace xformer::attention
