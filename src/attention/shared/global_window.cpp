#include "attention/shared/global_window.h"

#include <ATen/Functions.h>

#include <cmath>
#include <map>

#include "attention/shared/windows.h"
#include "kernels/attention/attention.h"
#include "tensor/parts.h"
#include "tensor/probe.h"

namespace xformer::attention {

at::Tensor join_rows(const std::vector<at::Tensor>& parts) {
  if (parts.size() == 1) return parts.front();
  std::vector<at::Tensor> rows;
  for (const at::Tensor& part : parts) rows.push_back(part.transpose(1, 2));
  return at::cat(rows, 1).transpose(1, 2);
}

GlobalWindow::GlobalWindow(int64_t global_tokens, int64_t window, const std::vector<int64_t>& dilation_of_heads,
                           const BuildContext& context)
    : global_tokens_(global_tokens), window_(window), causal_(context.causal), dropout_(context.make_dropout()) {
  std::map<int64_t, std::vector<int64_t>> by_dilation;
  for (size_t h = 0; h < dilation_of_heads.size(); ++h)
    by_dilation[dilation_of_heads[h]].push_back(static_cast<int64_t>(h));
  for (const auto& [dilation, heads] : by_dilation) groups_.push_back({dilation, heads, context.make_dropout()});
}

at::Tensor GlobalWindow::forward(const Projected& local, const Projected& rows, const SequenceMask& mask,
                                 bool training) const {
  const int64_t n = local.q.size(2), g = global_rows(n), others = n - g;
  std::vector<at::Tensor> parts;  // global rows, then the others
  if (g > 0) {
    // Causal global rows see each other only, as all that comes before them is global.
    const int64_t seen = mask.causal ? g : n;
    const auto valid = [&](int64_t tokens) {
      return mask.all_valid() ? at::Tensor() : mask.key_valid.narrow(1, 0, tokens);
    };
    kernels::AttentionOptions options;
    options.scale = 1 / std::sqrt(static_cast<double>(rows.q.size(-1)));
    options.mask = {valid(seen), mask.causal};
    options.query_valid = valid(g);
    options.dropout = dropout_.place(training);
    const ProbeScope scope("global");
    parts.push_back(
        kernels::attention(rows.q.narrow(2, 0, g), rows.k.narrow(2, 0, seen), rows.v.narrow(2, 0, seen), options));
  }
  if (others > 0) {
    const at::Tensor valid = mask.all_valid() ? mask.key_valid : mask.key_valid.narrow(1, g, others);
    std::vector<at::Tensor> by_head(static_cast<size_t>(local.q.size(1)));
    for (const Group& group : groups_) {
      const ProbeScope scope("dilation", group.dilation);
      const auto take = [&](const at::Tensor& x) {
        if (groups_.size() == 1) return x;
        std::vector<at::Tensor> heads;
        for (const int64_t head : group.heads) heads.push_back(x.narrow(1, head, 1));
        return at::cat(heads, 1);
      };
      const at::Tensor q = take(local.q), k = take(local.k), v = take(local.v);
      ExtraKeys extra;
      if (g > 0) {
        extra = {k.narrow(2, 0, g), v.narrow(2, 0, g), {}};
        if (!mask.all_valid()) extra.allowed = mask.key_valid.narrow(1, 0, g).unsqueeze(1);
      }
      const auto rest = [&](const at::Tensor& x) { return part_of(x, 2, g, others); };
      const at::Tensor out = window_attention(
          rest(q), rest(k), rest(v), valid,
          Windows::sliding(others, window_, mask.causal ? 0 : window_, group.dilation), group.dropout, training, extra);
      if (groups_.size() == 1) by_head = {out};
      else
        for (size_t i = 0; i < group.heads.size(); ++i)
          by_head[static_cast<size_t>(group.heads[i])] = out.narrow(1, static_cast<int64_t>(i), 1);
    }
    parts.push_back(groups_.size() == 1 ? by_head.front() : at::cat(by_head, 1));
  }
  return join_rows(parts);
}

Cost GlobalWindow::cost(const Shape& shape) const {
  const int64_t n = shape.query_len, g = global_rows(n), others = n - g;
  const double globals = static_cast<double>(g);
  // Pairs of all heads: global rows, then rows with a window.
  const double heads_of_all = static_cast<double>(shape.heads), seen = static_cast<double>(causal_ ? g : n);
  double executed = heads_of_all * static_cast<double>(kernels::attention_pairs(g, causal_ ? g : n, causal_));
  double pattern = heads_of_all * globals * (causal_ ? (globals + 1) / 2 : seen);
  if (others > 0)
    for (const Group& group : groups_) {
      const Windows windows = Windows::sliding(others, window_, causal_ ? 0 : window_, group.dilation);
      const double heads = static_cast<double>(group.heads.size());
      executed += heads * (windows.executed_pairs() + static_cast<double>(others) * globals);
      pattern += heads * (windows.pattern_pairs() + static_cast<double>(others) * globals);
    }
  const double b = static_cast<double>(shape.batch), d = static_cast<double>(shape.head_dim);
  return {4 * b * d * executed, 4 * b * d * pattern, kept_of_windows(b * heads_of_all, static_cast<double>(n), d)};
}

}  // namespace xformer::attention
