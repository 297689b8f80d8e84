#include "analysis/attention_span.h"

#include <ATen/Functions.h>

#include <cmath>

#include "attention/descriptor.h"
#include "attention/multi_head.h"

namespace xformer::analysis {

namespace {

constexpr int64_t kQueries = 128;  // rows of weights at a time

// For each sequence and head the mean over valid queries of sum_j A_ij |i - j| [s,h]. `rows` gives queries begin ..
// begin + count - 1 of A [s,h,count,n], in double.
template <class Rows>
at::Tensor mean_distance(const at::Tensor& valid, const Rows& rows) {
  const int64_t n = valid.size(1);
  const at::Tensor place = at::arange(n, valid.options().dtype(at::kDouble));
  at::Tensor sum;
  for (int64_t begin = 0; begin < n; begin += kQueries) {
    const int64_t count = std::min(kQueries, n - begin);
    const at::Tensor distance = (place.narrow(0, begin, count).unsqueeze(1) - place.unsqueeze(0)).abs();  // [count,n]
    const at::Tensor far = (rows(begin, count) * distance).sum(-1);                                       // [s,h,count]
    const at::Tensor part = far.masked_fill(valid.narrow(1, begin, count).logical_not().unsqueeze(1), 0).sum(-1);
    sum = sum.defined() ? sum + part : part;
  }
  return sum / valid.sum(1).unsqueeze(1);
}

at::Tensor hidden_keys(const at::Tensor& valid) { return valid.logical_not().unsqueeze(1).unsqueeze(1); }

// The cores of the layers in their order; none where the model has others.
std::vector<attention::AttentionCore*> cores_of(const models::Model& model) {
  std::vector<attention::AttentionCore*> result;
  for (const auto& module : model.modules())
    if (auto* const mixer = dynamic_cast<attention::MultiHeadMixer*>(module.get())) result.push_back(&mixer->core());
  return result;
}

}  // namespace

at::Tensor spans(const LayerTensors& tensors, int64_t first) {
  const int64_t n = tensors.q.size(2) - first;
  const at::Tensor q = tensors.q.narrow(2, first, n), k = tensors.k.narrow(2, first, n);
  const at::Tensor valid = tensors.valid.narrow(1, first, n), hidden = hidden_keys(valid);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
  return mean_distance(valid, [&](int64_t begin, int64_t count) {
    const at::Tensor scores = at::matmul(q.narrow(2, begin, count) * scale, k.transpose(-1, -2));  // [s,h,count,n]
    at::Tensor unseen = hidden;
    if (tensors.causal) unseen = hidden.logical_or(at::ones({count, n}, hidden.options()).triu(begin + 1));
    return at::softmax(scores.masked_fill(unseen, -INFINITY), -1, at::kDouble);
  });
}

at::Tensor spans(const at::Tensor& matrix, const at::Tensor& all_valid, int64_t first) {
  const int64_t n = matrix.size(2) - first;
  const at::Tensor valid = all_valid.narrow(1, first, n), hidden = hidden_keys(valid);
  return mean_distance(valid, [&](int64_t begin, int64_t count) {
    const at::Tensor rows = matrix.narrow(2, first + begin, count).narrow(3, first, n).to(at::kDouble).abs();
    const at::Tensor known = rows.masked_fill(hidden, 0), sum = known.sum(-1, /*keepdim=*/true);
    return known / sum.masked_fill(sum == 0, 1);
  });
}

at::Tensor effective_matrix(attention::AttentionCore& core, const LayerTensors& tensors) {
  const int64_t n = tensors.q.size(2), d = tensors.v.size(3);
  const SequenceMask mask{tensors.valid, tensors.causal};
  const at::Tensor identity = at::eye(n, tensors.v.options());
  at::Tensor result = at::empty({tensors.q.size(0), tensors.q.size(1), n, n}, tensors.v.options());
  attention::Carry carry;
  for (int64_t column = 0; column < n; column += d) {
    const int64_t width = std::min(d, n - column);
    at::Tensor values = at::zeros_like(tensors.v);
    values.narrow(3, 0, width).copy_(identity.narrow(1, column, width));
    result.narrow(3, column, width).copy_(core.forward(tensors.q, tensors.k, values, mask, carry).narrow(3, 0, width));
  }
  // The layer's own result shows whether that is what it does.
  const at::Tensor rows = tensors.valid.unsqueeze(1).unsqueeze(-1);
  const at::Tensor wrong = (at::matmul(result, tensors.v) - tensors.mixed) * rows;
  constexpr double kRounding = 1e-3;
  XF_CHECK(wrong.norm().item<double>() <= kRounding * (tensors.mixed * rows).norm().item<double>(), UserError,
           "no matrix of weights: this attention is not linear in its values");
  return result;
}

RequiredSpan required_span(const TrainedRun& run, data::Split split, int64_t examples, uint64_t seed,
                           const std::function<void(int64_t done, int64_t total)>& progress) {
  RequiredSpan result;
  result.effective = run.plan.attention != "softmax" && run.plan.attention != "softmax-fused";
  XF_CHECK(!result.effective || !attention::resolve(run.plan.attention).traits().carries, UserError,
           "{} hands a state from layer to layer: a layer of it has no matrix of weights", run.plan.attention);
  const std::vector<attention::AttentionCore*> cores = cores_of(*run.model);
  std::map<int64_t, std::pair<at::Tensor, at::Tensor>> sums;  // by layer: [h] over sequences
  double uniform = 0;
  result.examples = for_each_layer(
      run, split, examples, seed,
      [&](int64_t layer, const LayerTensors& tensors) {
        result.front = tensors.front;
        at::Tensor matrix;
        if (result.effective) {
          XF_CHECK(tensors.q.size(2) <= kLongestMatrix, UserError,
                   "{} places: matrices of weights are built of {} at most (softmax needs none)", tensors.q.size(2),
                   kLongestMatrix);
          matrix = effective_matrix(*cores.at(static_cast<size_t>(layer)), tensors);
        }
        const auto of = [&](int64_t first) {
          return (result.effective ? spans(matrix, tensors.valid, first) : spans(tensors, first)).sum(0).cpu();
        };
        const at::Tensor with = of(0), without = tensors.front > 0 ? of(tensors.front) : with;
        auto& [sum, other] = sums[layer];
        sum = sum.defined() ? sum + with : with;
        other = other.defined() ? other + without : without;
        if (layer > 0) return;
        result.sequences += tensors.valid.size(0);
        const at::Tensor n = tensors.valid.sum(1).to(at::kDouble);
        uniform += (tensors.causal ? (n - 1) / 4 : (n * n - 1) / (3 * n)).sum().item<double>();
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
