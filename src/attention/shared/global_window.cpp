#include "attention/shared/global_window.h"

#include <ATen/Functions.h>

#include <cmath>
#include <map>

#include "attention/shared/windows.h"
#include "tensor/probe.h"

namespace xformer::attention {

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
    const SequenceMask keys{mask.all_valid() ? mask.key_valid : mask.key_valid.narrow(1, 0, seen), mask.causal};
    const double scale = 1 / std::sqrt(static_cast<double>(rows.q.size(-1)));
    const at::Tensor weights = masked_softmax(
        at::matmul(rows.q.narrow(2, 0, g) * scale, rows.k.narrow(2, 0, seen).transpose(-1, -2)), keys);  // [b,h,g,n]
    probe("global_weights", weights);
    parts.push_back(at::matmul(dropout_(weights, training), rows.v.narrow(2, 0, seen)));
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
        if (!mask.all_valid()) extra.allowed = mask.key_valid.narrow(1, 0, g).view({-1, 1, 1, 1, 1, g});
      }
      const auto rest = [&](const at::Tensor& x) { return x.narrow(2, g, others); };
      const at::Tensor out = window_attention(
          rest(q), rest(k), rest(v), valid,
          Windows::sliding(others, window_, mask.causal ? 0 : window_, group.dilation), group.dropout, training, extra);
      if (groups_.size() == 1) by_head = {out};
      else
        for (size_t i = 0; i < group.heads.size(); ++i)
          by_head[static_cast<size_t>(group.heads[i])] = out.narrow(1, static_cast<int64_t>(i), 1);
    }
    parts.push_back(at::cat(by_head, 1));
  }
  return at::cat(parts, 2);
}

Cost GlobalWindow::cost(const Shape& shape) const {
  const int64_t n = shape.query_len, g = global_rows(n), others = n - g;
  const double globals = static_cast<double>(g);
  // Of all heads: global rows, then rows with a window.
  double executed = static_cast<double>(shape.heads) * globals * static_cast<double>(causal_ ? g : n);
  double pattern = causal_ ? static_cast<double>(shape.heads) * globals * (globals + 1) / 2 : executed;
  if (others > 0)
    for (const Group& group : groups_) {
      const Windows windows = Windows::sliding(others, window_, causal_ ? 0 : window_, group.dilation);
      const double rows = static_cast<double>(windows.dilation * windows.blocks * windows.block);
      const double heads = static_cast<double>(group.heads.size());
      executed += heads * (windows.executed_pairs() + rows * globals);
      pattern += heads * (windows.pattern_pairs() + static_cast<double>(others) * globals);
    }
  const double b = static_cast<double>(shape.batch), d = static_cast<double>(shape.head_dim);
  return {4 * b * d * executed, 4 * b * d * pattern, 2 * b * executed};
}

}  // namespace xformer::attention
