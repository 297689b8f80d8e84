#include "analysis/attention_span.h"

#include <ATen/Functions.h>

#include <cmath>

namespace xformer::analysis {

namespace {

constexpr int64_t kQueries = 128;  // rows of weights at a time

}  // namespace

at::Tensor spans(const LayerTensors& tensors, int64_t first) {
  const int64_t n = tensors.q.size(2);
  const at::Tensor q = tensors.q.narrow(2, first, n - first), k = tensors.k.narrow(2, first, n - first);
  const at::Tensor valid = tensors.valid.narrow(1, first, n - first);  // [s,n]
  const at::Tensor hidden = valid.logical_not().unsqueeze(1).unsqueeze(1);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
  const at::Tensor place = at::arange(n - first, q.options().dtype(at::kDouble));
  at::Tensor sum = at::zeros({q.size(0), q.size(1)}, q.options().dtype(at::kDouble));
  for (int64_t begin = 0; begin < n - first; begin += kQueries) {
    const int64_t rows = std::min(kQueries, n - first - begin);
    const at::Tensor scores = at::matmul(q.narrow(2, begin, rows) * scale, k.transpose(-1, -2));  // [s,h,rows,n]
    const at::Tensor weights = at::softmax(scores.masked_fill(hidden, -INFINITY), -1, at::kDouble);
    const at::Tensor distance = (place.narrow(0, begin, rows).unsqueeze(1) - place.unsqueeze(0)).abs();  // [rows,n]
    const at::Tensor far = (weights * distance).sum(-1);                                                 // [s,h,rows]
    sum += far.masked_fill(valid.narrow(1, begin, rows).logical_not().unsqueeze(1), 0).sum(-1);
  }
  return sum / valid.sum(1).unsqueeze(1);
}

RequiredSpan required_span(const TrainedRun& run, data::Split split, int64_t examples, uint64_t seed,
                           const std::function<void(int64_t done, int64_t total)>& progress) {
  XF_CHECK(run.plan.attention == "softmax" || run.plan.attention == "softmax-fused", UserError,
           "the required span is of softmax weights over all pairs (softmax, softmax-fused); {} has none",
           run.plan.attention);
  RequiredSpan result;
  std::map<int64_t, std::pair<at::Tensor, at::Tensor>> sums;  // by layer: [h] over sequences
  double uniform = 0;
  result.examples = for_each_layer(
      run, split, examples, seed,
      [&](int64_t layer, const LayerTensors& tensors) {
        result.front = tensors.front;
        const at::Tensor with = spans(tensors, 0).sum(0).cpu();
        const at::Tensor without = tensors.front > 0 ? spans(tensors, tensors.front).sum(0).cpu() : with;
        auto& [sum, other] = sums[layer];
        sum = sum.defined() ? sum + with : with;
        other = other.defined() ? other + without : without;
        if (layer > 0) return;
        result.sequences += tensors.valid.size(0);
        const at::Tensor n = tensors.valid.sum(1).to(at::kDouble);
        uniform += ((n * n - 1) / (3 * n)).sum().item<double>();
      },
      progress);
  const auto sequences = static_cast<double>(result.sequences);
  for (const auto& [layer, both] : sums)
    for (int64_t head = 0; head < both.first.size(0); ++head) {
      const auto of = [&](const at::Tensor& sum) { return sum[head].item<double>() / sequences; };
      result.heads.push_back({layer, head, of(both.first), of(both.second)});
      result.span += result.heads.back().span;
      result.without_front += result.heads.back().without_front;
    }
  result.span /= static_cast<double>(result.heads.size());
  result.without_front /= static_cast<double>(result.heads.size());
  result.uniform = uniform / sequences;
  return result;
}

}  // namespace xformer::analysis
